package walsender

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Method is how a client proves who it is.
type Method string

// The methods of pg_hba.conf that are supported.
const (
	MethodTrust    Method = "trust"
	MethodReject   Method = "reject"
	MethodPassword Method = "password" // the password itself
	MethodMD5      Method = "md5"      // SCRAM if the verifier is one
	MethodSCRAM    Method = "scram-sha-256"
	MethodCert     Method = "cert"
	MethodPeer     Method = "peer"  // the user of the operating system, on unix sockets
	MethodIdent    Method = "ident" // the same over TCP, by the client's word
)

// Methods are all of them.
var Methods = []Method{MethodTrust, MethodReject, MethodPassword, MethodMD5, MethodSCRAM, MethodCert, MethodPeer, MethodIdent}

// The kinds of connection that a rule is for.
const (
	ConnLocal     = "local" // unix sockets
	ConnHost      = "host"
	ConnHostSSL   = "hostssl"
	ConnHostNoSSL = "hostnossl"
)

// What a rule wants of a client's certificate beside its method.
const (
	ClientCertVerifyCA   = "verify-ca"   // one that was signed
	ClientCertVerifyFull = "verify-full" // and names the user
)

// keywordAll stands for all users, addresses or databases; keywordReplication for physical connections, which all does not
// stand for.
const (
	keywordAll         = "all"
	keywordReplication = "replication"
)

// Rule is a line of pg_hba.conf: it says how clients of a kind, a user and an address prove who they are.
type Rule struct {
	Type       string   // local, host, hostssl, hostnossl
	Databases  []string // names, all, replication. Empty: all and replication
	Users      []string // names, all, or /regular expression. Empty: all
	Address    string   // an address, a network as in 192.0.2.0/24, or all, which empty means too
	Method     Method
	ClientCert string // empty: none is needed
	Map        string // of names that the proof shows to users; empty: they must be equal
	network    netip.Prefix
	patterns   []*regexp.Regexp // of Users
}

// maxPatternBytes bounds a regular expression.
const maxPatternBytes = 1000

// NewRule returns a rule that is checked. Beyond what PostgreSQL checks, trust must not be possible from other machines without a
// certificate, and password must not be possible in the clear from there.
//
// Source: PostgreSQL src/backend/libpq/hba.c, parse_hba_line (13-18).
func NewRule(r Rule) (Rule, error) {
	if err := r.setAddress(); err != nil {
		return Rule{}, err
	}
	r.patterns = nil
	for _, user := range r.Users {
		if text, ok := strings.CutPrefix(user, "/"); ok {
			pattern, err := compile(text)
			if err != nil {
				return Rule{}, err
			}
			r.patterns = append(r.patterns, pattern)
		}
	}
	if r.Method == MethodIdent && r.Type == ConnLocal {
		r.Method = MethodPeer
	}
	if r.Method == MethodCert && r.ClientCert == "" {
		r.ClientCert = ClientCertVerifyFull
	}
	return r, r.check()
}

func compile(text string) (*regexp.Regexp, error) {
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("regular expression of more than %d bytes", maxPatternBytes)
	}
	return regexp.Compile(text)
}

func (r *Rule) setAddress() error {
	switch {
	case r.Type == ConnLocal:
		if r.Address != "" {
			return errors.New("local is for unix sockets, which have no address")
		}
	case r.Address == "" || r.Address == keywordAll:
		r.network = netip.Prefix{}
	default:
		network, err := netip.ParsePrefix(r.Address)
		if err != nil {
			address, errAddress := netip.ParseAddr(r.Address)
			if errAddress != nil {
				return fmt.Errorf("%q is not an address: want one as 192.0.2.1, a network as 192.0.2.0/24, or all", r.Address)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if network != network.Masked() {
			return fmt.Errorf("%s has bits behind its mask: want %s", r.Address, network.Masked())
		}
		r.network = network
	}
	return nil
}

func (r *Rule) check() error {
	remote := r.Type != ConnLocal && !(r.network.IsValid() && r.network.Addr().IsLoopback())
	switch {
	case !slices.Contains([]string{ConnLocal, ConnHost, ConnHostSSL, ConnHostNoSSL}, r.Type):
		return fmt.Errorf("type %q is not one of local, host, hostssl, hostnossl", r.Type)
	case !slices.Contains(Methods, r.Method):
		return fmt.Errorf("method %q is not one of %v", r.Method, Methods)
	case !slices.Contains([]string{"", ClientCertVerifyCA, ClientCertVerifyFull}, r.ClientCert):
		return fmt.Errorf("clientcert %q is not one of verify-ca, verify-full", r.ClientCert)
	case r.ClientCert != "" && r.Type != ConnHostSSL:
		return errors.New("certificates of clients are possible in hostssl only")
	case r.Method == MethodCert && r.ClientCert != ClientCertVerifyFull:
		return errors.New("method cert implies clientcert verify-full")
	case r.Method == MethodPeer && r.Type != ConnLocal:
		return errors.New("method peer is possible in local only")
	case r.Map != "" && r.Method != MethodCert && r.Method != MethodPeer && r.Method != MethodIdent:
		return errors.New("a map is possible with the methods cert, peer and ident only")
	case r.Method == MethodTrust && remote && r.ClientCert == "":
		return errors.New("trust lets in everybody: possible in local, for loopback addresses, or with clientcert")
	case r.Method == MethodIdent && remote:
		return errors.New("ident believes the client's machine: possible in local and for loopback addresses")
	case r.Method == MethodPassword && remote && r.Type != ConnHostSSL:
		return errors.New("password sends the password itself: possible in local, hostssl, and for loopback addresses")
	}
	return nil
}

// caller is what rules look at.
type caller struct {
	unix, encrypted bool
	address         netip.Addr // of the client; invalid for a unix socket
	user            string
	database        string // "" for a physical connection
}

// match reports whether the rule is for the caller.
//
// Source: PostgreSQL src/backend/libpq/hba.c, check_hba (13-18).
func (r *Rule) match(c caller) bool {
	switch {
	case c.unix != (r.Type == ConnLocal),
		r.Type == ConnHostSSL && !c.encrypted,
		r.Type == ConnHostNoSSL && c.encrypted,
		r.network.IsValid() && !r.network.Contains(c.address.Unmap()):
		return false
	}
	return r.matchDatabase(c.database) && r.matchUser(c.user)
}

func (r *Rule) matchDatabase(database string) bool {
	switch {
	case len(r.Databases) == 0:
		return true
	case database == "":
		return slices.Contains(r.Databases, keywordReplication)
	}
	return slices.Contains(r.Databases, keywordAll) || slices.Contains(r.Databases, database)
}

func (r *Rule) matchUser(user string) bool {
	return len(r.Users) == 0 || slices.Contains(r.Users, keywordAll) || slices.Contains(r.Users, user) ||
		slices.ContainsFunc(r.patterns, func(p *regexp.Regexp) bool { return p.MatchString(user) })
}

// trustedHere are the rules without any configuration: whoever has got onto this machine is trusted.
var trustedHere = constant(
	Rule{Type: ConnLocal, Method: MethodTrust},
	Rule{Type: ConnHost, Address: "127.0.0.0/8", Method: MethodTrust},
	Rule{Type: ConnHost, Address: "::1", Method: MethodTrust},
)

// PasswordRules have everybody prove a password by SCRAM-SHA-256. With trustLocal clients of unix sockets need none.
func PasswordRules(trustLocal bool) []Rule {
	local := MethodSCRAM
	if trustLocal {
		local = MethodTrust
	}
	return constant(Rule{Type: ConnLocal, Method: local}, Rule{Type: ConnHost, Method: MethodSCRAM})
}

func constant(list ...Rule) []Rule {
	rules := make([]Rule, 0, len(list))
	for _, r := range list {
		checked, err := NewRule(r)
		if err != nil {
			panic(err) // they are written above
		}
		rules = append(rules, checked)
	}
	return rules
}
