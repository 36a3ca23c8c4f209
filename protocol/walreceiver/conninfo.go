package walreceiver

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgpassfile"
	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/socket"
)

// session is what a connection string asks for, ready to connect with.
type session struct {
	config *pgconn.Config // of all hosts; hosts makes those to connect with
	target target
	alive  net.KeepAliveConfig
	// userTimeout is tcp_user_timeout; 0 leaves it to the operating system.
	userTimeout time.Duration
	addresses   []string             // of hostaddr, one for each host, or none
	passwords   *pgpassfile.Passfile // nil if no host needs one
	shuffle     bool
	requirePeer string
	// systemID is that of the cluster which the connection must lead to; 0 if the sink decides later.
	systemID protocol.SystemID
	loose    error // why the password file is not used; nil if it is, or is not needed
}

// parseConninfo reads a libpq connection string or URI and the files that it names, without looking at the network. A
// password file that others can read is not used, as libpq does not use it.
func parseConninfo(o *Options) (*session, error) {
	s, err := parseSession(withDatabase(o.Conninfo, "replication"))
	if err != nil {
		return nil, fmt.Errorf("parse upstream conninfo: %w", err)
	}
	params := s.config.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = o.ApplicationName
	}
	params["replication"] = "true"
	if o.Link != nil {
		params[link.StartupParameter] = link.LinkVersion
	}
	return s, nil
}

// parseSession reads a conninfo for any kind of connection; its database is what the password file is searched for.
func parseSession(conninfo string) (*session, error) {
	config, err := pgconn.ParseConfig(withoutPassfile(conninfo))
	if err != nil {
		return nil, err
	}
	s := &session{config: config, alive: net.KeepAliveConfig{Enable: true}}
	s.readPassfile(passfile(conninfo))
	if s.target, err = targetOf(config.ValidateConnect); err != nil {
		return nil, err
	}
	if err := s.libpqOnly(config.RuntimeParams); err != nil {
		return nil, err
	}
	return s, nil
}

// CheckConninfo reads a conninfo and the files that it names, without looking at the network. Errors: *pgconn.ParseConfigError, which
// shows the conninfo; others name the parameter.
func CheckConninfo(conninfo string) error {
	_, err := parseSession(conninfo)
	return err
}

// withDatabase overrides the conninfo's database. A replication connection has "replication" there, the name by which a stock
// walreceiver looks into a password file; the server ignores it.
//
// Source: PostgreSQL src/backend/replication/libpqwalreceiver/libpqwalreceiver.c, libpqrcv_connect (13-18).
func withDatabase(conninfo, name string) string {
	if !isURI(conninfo) {
		return conninfo + " dbname='" + quoteValue.Replace(name) + "'"
	}
	name = strings.ReplaceAll(url.QueryEscape(name), "+", "%20") // as libpq reads a URI, "+" is no blank
	if strings.Contains(conninfo, "?") {
		return conninfo + "&dbname=" + name
	}
	return conninfo + "?dbname=" + name
}

// quoteValue spells a value between the quotes of a conninfo.
var quoteValue = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// targetOf finds the target_session_attrs that pgconn's validation function stands for: pgconn does not keep the word, and
// its functions ask in SQL, which a physical walsender refuses.
func targetOf(validate pgconn.ValidateConnectFunc) (target, error) {
	if validate == nil {
		return targetAny, nil
	}
	known := map[target]pgconn.ValidateConnectFunc{
		targetReadWrite:     pgconn.ValidateConnectTargetSessionAttrsReadWrite,
		targetReadOnly:      pgconn.ValidateConnectTargetSessionAttrsReadOnly,
		targetPrimary:       pgconn.ValidateConnectTargetSessionAttrsPrimary,
		targetStandby:       pgconn.ValidateConnectTargetSessionAttrsStandby,
		targetPreferStandby: pgconn.ValidateConnectTargetSessionAttrsPreferStandby,
	}
	for t, f := range known {
		if reflect.ValueOf(f).Pointer() == reflect.ValueOf(validate).Pointer() {
			return t, nil
		}
	}
	return targetAny, errors.New("unknown target_session_attrs")
}

// unsupported are libpq's parameters that say how to prove something in a way that is not known here, or where to write secrets.
var unsupported = []string{
	"scram_client_key", "scram_server_key", "oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope", "sslkeylogfile",
}

// libpqOnly takes the parameters that libpq keeps to itself, and that pgconn would send to the server, out of params.
// Those that guard the connection and are not supported are an error.
func (s *session) libpqOnly(params map[string]string) error {
	take := func(name string) string {
		value := params[name]
		delete(params, name)
		return value
	}
	if name := take("fallback_application_name"); params["application_name"] == "" && name != "" {
		params["application_name"] = name
	}
	for _, name := range unsupported {
		if take(name) != "" {
			return fmt.Errorf("%s is not supported", name)
		}
	}
	s.requirePeer = first(take("requirepeer"), os.Getenv("PGREQUIREPEER"))
	if first(take("gssencmode"), os.Getenv("PGGSSENCMODE")) == "require" {
		return errors.New("gssencmode=require is not supported")
	}
	if err := s.setAddresses(first(take("hostaddr"), os.Getenv("PGHOSTADDR"))); err != nil {
		return err
	}
	if err := s.setTLS(tlsSettings{
		crl: first(take("sslcrl"), os.Getenv("PGSSLCRL")), crlDir: first(take("sslcrldir"), os.Getenv("PGSSLCRLDIR")),
		min: first(take("ssl_min_protocol_version"), os.Getenv("PGSSLMINPROTOCOLVERSION")),
		max: first(take("ssl_max_protocol_version"), os.Getenv("PGSSLMAXPROTOCOLVERSION")),
	}); err != nil {
		return err
	}
	if err := s.setBalance(first(take("load_balance_hosts"), os.Getenv("PGLOADBALANCEHOSTS"))); err != nil {
		return err
	}
	for _, name := range []string{"gsslib", "gssdelegation", "sslcompression", "dbname"} {
		take(name)
	}
	s.alive.Enable = take("keepalives") != "0"
	var err error
	number := func(name string) int {
		text := take(name)
		if text == "" {
			return 0
		}
		n, bad := strconv.Atoi(text)
		if bad != nil || n < 0 {
			err = fmt.Errorf("%s=%q: want a number", name, text)
		}
		return n
	}
	s.userTimeout = time.Duration(number("tcp_user_timeout")) * time.Millisecond
	s.alive.Idle = time.Duration(number("keepalives_idle")) * time.Second
	s.alive.Interval = time.Duration(number("keepalives_interval")) * time.Second
	s.alive.Count = number("keepalives_count")
	return err
}

// prepare applies what the conninfo says of sockets, to those that know it.
func (s *session) prepare(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return s.checkPeer(conn)
	}
	if s.userTimeout > 0 {
		if err := socket.SetUserTimeout(tcp, s.userTimeout); err != nil {
			return err
		}
	}
	return tcp.SetKeepAliveConfig(s.alive)
}
