package walsender

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRulesAreChecked(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string // part of the error; "" for none
	}{
		{Rule{Type: ConnLocal, Method: MethodTrust}, ""},
		{Rule{Type: ConnLocal, Method: MethodIdent, Map: "m"}, ""},
		{Rule{Type: ConnHost, Address: "all", Method: MethodSCRAM, Users: []string{"all"}}, ""},
		{Rule{Type: ConnHost, Address: "127.0.0.1", Method: MethodTrust}, ""},
		{Rule{Type: ConnHost, Address: "::1/128", Method: MethodPassword}, ""},
		{Rule{Type: ConnHostSSL, Method: MethodPassword}, ""},
		{Rule{Type: ConnHostSSL, Method: MethodTrust, ClientCert: ClientCertVerifyCA}, ""},
		{Rule{Type: ConnHostSSL, Method: MethodCert, Map: "m"}, ""},
		{Rule{Type: "hostgss", Method: MethodTrust, Address: "::1"}, "not one of local"},
		{Rule{Type: ConnHost, Method: "gss"}, "not one of [trust"},
		{Rule{Type: ConnHost, Method: MethodTrust}, "everybody"},
		{Rule{Type: ConnHost, Address: "10.0.0.0/8", Method: MethodTrust}, "everybody"},
		{Rule{Type: ConnHost, Address: "0.0.0.0/0", Method: MethodPassword}, "the password itself"},
		{Rule{Type: ConnHost, Address: "10.0.0.0/8", Method: MethodIdent}, "believes"},
		{Rule{Type: ConnHost, Address: "10.0.0.1/8", Method: MethodSCRAM}, "want 10.0.0.0/8"},
		{Rule{Type: ConnHost, Address: "example.com", Method: MethodSCRAM}, "not an address"},
		{Rule{Type: ConnLocal, Address: "127.0.0.1", Method: MethodTrust}, "no address"},
		{Rule{Type: ConnHost, Method: MethodPeer}, "local only"},
		{Rule{Type: ConnHost, Method: MethodCert}, "hostssl only"},
		{Rule{Type: ConnHostSSL, Method: MethodSCRAM, ClientCert: "yes"}, "verify-ca, verify-full"},
		{Rule{Type: ConnHostSSL, Method: MethodCert, ClientCert: ClientCertVerifyCA}, "implies"},
		{Rule{Type: ConnHostSSL, Method: MethodSCRAM, Map: "m"}, "a map"},
		{Rule{Type: ConnLocal, Method: MethodTrust, Users: []string{"/("}}, "missing"},
		{Rule{Type: ConnLocal, Method: MethodTrust, Users: []string{"/" + strings.Repeat("a", maxPatternBytes+1)}}, "more than"},
	} {
		if _, err := NewRule(c.rule); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.rule, err, c.want)
		}
	}
}

// TestFirstRuleCounts: kind of connection, address, user and database choose the rule.
func TestFirstRuleCounts(t *testing.T) {
	var access Access
	for _, r := range []Rule{
		{Type: ConnLocal, Users: []string{"a", "b"}, Method: MethodPeer},                               // 1
		{Type: ConnHostNoSSL, Address: "192.0.2.0/24", Method: MethodReject},                           // 2
		{Type: ConnHostSSL, Address: "192.0.2.0/24", Users: []string{`/^node_\d$`}, Method: MethodMD5}, // 3
		{Type: ConnHost, Address: "192.0.2.7", Databases: []string{"replication"}, Method: MethodMD5},  // 4
		{Type: ConnHost, Databases: []string{"db", "all"}, Users: []string{"c"}, Method: MethodMD5},    // 5
		{Type: ConnHost, Address: "::1", Users: []string{"all"}, Method: MethodTrust},                  // 6
	} {
		checked, err := NewRule(r)
		if err != nil {
			t.Fatal(err)
		}
		access.Rules = append(access.Rules, checked)
	}
	near, far, mapped, v6 := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("::1")
	for _, c := range []struct {
		caller caller
		want   int
	}{
		{caller{unix: true, user: "a"}, 1}, {caller{unix: true, user: "c"}, 0},
		{caller{address: near, user: "a"}, 2}, {caller{address: mapped, user: "a"}, 2},
		{caller{address: near, encrypted: true, user: "node_1"}, 3}, {caller{address: near, encrypted: true, user: "node_10"}, 4},
		{caller{address: near, encrypted: true, user: "a", database: "x"}, 0}, {caller{address: near, encrypted: true, user: "c", database: "x"}, 5},
		{caller{address: far, user: "c"}, 0}, {caller{address: far, user: "c", database: "db"}, 5},
		{caller{address: v6, user: "x"}, 6}, {caller{address: v6, user: "x", database: "d"}, 6},
	} {
		if _, got := access.match(c.caller); got != c.want {
			t.Errorf("%+v: rule %d, want %d", c.caller, got, c.want)
		}
	}
}

func TestMappings(t *testing.T) {
	access := Access{}
	for _, m := range []Mapping{
		{Map: "m", System: `/^(.*)\.example$`, User: `node_\1`}, {Map: "m", System: "root", User: "postgres"}, {Map: "n", System: "root", User: "all"},
	} {
		checked, err := NewMapping(m)
		if err != nil {
			t.Fatal(err)
		}
		access.Mappings = append(access.Mappings, checked)
	}
	for _, c := range []struct {
		name, system, user string
		want               bool
	}{
		{"", "a", "a", true}, {"", "a", "b", false}, {"m", "a.example", "node_a", true}, {"m", "a.example", "a", false}, {"m", "root", "postgres", true},
		{"m", "root", "root", false}, {"n", "root", "x", true}, {"n", "x", "x", false}, {"o", "x", "x", false},
	} {
		if got := access.mapped(c.name, c.system, c.user); got != c.want {
			t.Errorf("map %q lets %q be %q: %v", c.name, c.system, c.user, got)
		}
	}
	for _, m := range []Mapping{{}, {Map: "m", System: "a"}, {Map: "m", System: "a", User: `\1`}, {Map: "m", System: "/a", User: `\1`}, {Map: "m", System: "/(", User: "a"}} {
		if _, err := NewMapping(m); err == nil {
			t.Errorf("%+v is accepted", m)
		}
	}
}

func FuzzIdent(f *testing.F) {
	f.Add("6193, 23 : USERID : UNIX : stjohns\r\n")
	f.Add("6195, 23 : ERROR : NO-USER\r\n")
	f.Fuzz(func(t *testing.T, line string) {
		if name, err := parseIdent(line); err == nil && (name == "" || !strings.Contains(line, name)) {
			t.Errorf("%q: %q", line, name)
		}
	})
}

func FuzzRule(f *testing.F) {
	f.Add("hostssl", "192.0.2.0/24", "/^a", "cert", "", "m")
	f.Fuzz(func(t *testing.T, kind, address, user, method, clientCert, mapping string) {
		r, err := NewRule(Rule{Type: kind, Address: address, Users: []string{user}, Method: Method(method), ClientCert: clientCert, Map: mapping})
		if err != nil {
			return
		}
		if open := r.Method == MethodTrust && r.ClientCert == ""; open && r.match(caller{address: netip.MustParseAddr("192.0.2.1"), encrypted: true, user: user}) {
			t.Fatalf("%+v trusts another machine", r)
		}
	})
}
