package walsender

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Codes in the place of a protocol version, and limits of the first packets.
//
// Source: PostgreSQL src/include/libpq/pqcomm.h (13-18).
const (
	codeCancel  = 1234<<16 | 5678
	codeSSL     = 1234<<16 | 5679
	codeGSSENC  = 1234<<16 | 5680
	versionWord = 3 << 16

	maxStartupBytes = 10000
	maxKeyBytes     = 256
)

// startup is what a client asks for with its first packet.
type startup struct {
	version  uint32 // negotiated, versionWord or above
	user     string
	database string   // "" for a physical connection without database
	options  []string // command lines
	settings []setting
	link     bool // the client asked for frames and gets them
	isSQL    bool // no replication connection: it is relayed
}

// setting is a run-time parameter as a client spells it.
type setting struct{ name, value string }

// cancelRequest asks to cancel what another session does.
type cancelRequest struct {
	pid int32
	key []byte
}

// readStartup reads the packets up to the startup packet and answers the requests for encryption.
// Exactly one of the results is not nil. Errors: *protocol.Error to be sent; errClosed; or of the connection.
func (s *session) readStartup() (*startup, *cancelRequest, error) {
	answered := map[uint32]bool{}
	if err := s.encryptDirectly(); err != nil {
		return nil, nil, err
	}
	for {
		packet, err := s.readPacket()
		if err != nil {
			return nil, nil, err
		}
		code := be.Uint32(packet)
		switch {
		case code == codeCancel:
			request, err := parseCancel(packet[4:], s.major)
			return nil, request, err
		case (code == codeSSL || code == codeGSSENC) && !answered[code] && !s.encrypted:
			answered[code] = true
			if err := s.answerEncryption(code); err != nil {
				return nil, nil, err
			}
			continue
		}
		st, err := s.parseStartup(code, packet[4:])
		return st, nil, err
	}
}

// readPacket reads an untyped packet and returns it without its length: four bytes of code and more.
func (s *session) readPacket() ([]byte, error) {
	if err := s.wire.skip(); err != nil {
		return nil, err
	}
	head, err := s.wire.in.Peek(4)
	if err != nil {
		return nil, err
	}
	length := be.Uint32(head)
	if length < 4+4 || length > 4+maxStartupBytes {
		return nil, fmt.Errorf("%w: invalid length of startup packet", errClosed)
	}
	packet, err := s.wire.peek(int(length))
	if err != nil {
		return nil, err
	}
	s.wire.unread = len(packet)
	return packet[4:], nil
}

func parseCancel(body []byte, major int) (*cancelRequest, error) {
	limit := 4
	if major >= 18 {
		limit = maxKeyBytes
	}
	if n := len(body) - 4; n < 4 && major < 18 || n < 1 || n > limit {
		return nil, fmt.Errorf("%w: invalid length of cancel request", errClosed)
	}
	return &cancelRequest{pid: int32(be.Uint32(body)), key: bytes.Clone(body[4:])}, nil
}

// parseStartup reads a startup packet behind its version and sends NegotiateProtocolVersion if it has to.
//
// Source: PostgreSQL src/backend/tcop/backend_startup.c, ProcessStartupPacket (17-18); postmaster.c (13-16).
func (s *session) parseStartup(version uint32, body []byte) (*startup, error) {
	newest := uint32(versionWord)
	if s.major >= 18 {
		newest += 2
	}
	if version>>16 != 3 {
		oldest := 3
		if s.major == 13 {
			oldest = 2
		}
		s.old = version>>16 < 3
		return nil, protocol.Fatalf(protocol.CodeFeatureNotSupported, "unsupported frontend protocol %d.%d: server supports %d.0 to 3.%d",
			version>>16, version&0xffff, oldest, newest&0xffff)
	}
	pairs, ok := splitPairs(body)
	if !ok {
		return nil, protocol.Fatalf(protocol.CodeProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
	}
	st := &startup{version: min(version, newest)}
	replication, unknown, err := st.take(pairs, s.server.options.Link)
	if err != nil {
		return nil, err
	}
	if version > newest || len(unknown) > 0 {
		if err := s.wire.add(&pgproto3.NegotiateProtocolVersion{NewestMinorProtocol: st.version, UnrecognizedOptions: unknown}); err != nil {
			return nil, err
		}
	}
	return st, st.check(replication, s.server.options.SQL)
}

// splitPairs cuts NUL-terminated names and values; an empty name must be the last byte.
func splitPairs(body []byte) ([]setting, bool) {
	var pairs []setting
	for {
		name, rest, found := bytes.Cut(body, []byte{0})
		if !found {
			return nil, false
		}
		if len(name) == 0 {
			return pairs, len(rest) == 0
		}
		value, rest, found := bytes.Cut(rest, []byte{0})
		if !found {
			return nil, false
		}
		pairs = append(pairs, setting{string(name), string(value)})
		body = rest
	}
}

// take sorts the pairs. replication is the kind of connection; unknown are the protocol extensions that are not known.
func (st *startup) take(pairs []setting, offered bool) (replication string, unknown []string, err error) {
	for _, p := range pairs {
		switch {
		case p.name == "user":
			st.user = p.value
		case p.name == "database":
			st.database = p.value
		case p.name == "replication":
			if replication, err = parseReplication(p.value); err != nil {
				return "", nil, err
			}
		case p.name == "options":
			st.options = append(st.options, p.value)
		case p.name == link.StartupParameter && offered:
			st.link = true
		case strings.HasPrefix(p.name, "_pq_."):
			unknown = append(unknown, p.name)
		default:
			st.settings = append(st.settings, p)
		}
	}
	return replication, unknown, nil
}

// check looks at what a startup packet must say.
func (st *startup) check(replication string, sql bool) error {
	if st.user == "" {
		return protocol.Fatalf(protocol.CodeInvalidAuthorization, "no PostgreSQL user name specified in startup packet")
	}
	if len(st.user) > protocol.MaxNameBytes {
		st.user = st.user[:protocol.MaxNameBytes]
	}
	switch replication {
	case "database":
		if st.database == "" {
			st.database = st.user
		}
	case "on":
		st.database = ""
	default:
		if !sql {
			err := protocol.Fatalf(protocol.CodeFeatureNotSupported, "walproxy accepts replication connections only")
			err.Hint = "Connect to the primary or to a standby for SQL, or have the node relay it: listen.sql."
			return err
		}
		st.isSQL, st.link = true, false
		if st.database == "" {
			st.database = st.user
		}
	}
	return nil
}

// parseReplication returns "on", "off" or "database".
func parseReplication(value string) (string, error) {
	if value == "database" {
		return value, nil
	}
	on, ok := parseBool(value)
	switch {
	case !ok:
		err := protocol.Fatalf(protocol.CodeInvalidParameterValue, "invalid value for parameter \"replication\": \"%s\"", value)
		err.Hint = `Valid values are: "false", 0, "true", 1, "database".`
		return "", err
	case on:
		return "on", nil
	}
	return "off", nil
}

// parseSwitches reads the value of "options", a server's command line: -c name=value and --name=value.
//
// Source: PostgreSQL src/backend/utils/init/postinit.c, pg_split_opts; tcop/postgres.c, process_postgres_switches (13-18).
func parseSwitches(text string) ([]setting, error) {
	var settings []setting
	words := splitSwitches(text)
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "-c" && i+1 < len(words):
			i++
			word = words[i]
		case strings.HasPrefix(word, "-c"), strings.HasPrefix(word, "--"):
			word = word[2:]
		default:
			return nil, protocol.Fatalf(protocol.CodeSyntaxError, "invalid command-line argument for server process: %s", word)
		}
		name, value, found := strings.Cut(word, "=")
		if !found {
			return nil, protocol.Fatalf(protocol.CodeSyntaxError, "-c %s requires a value", word)
		}
		settings = append(settings, setting{strings.ReplaceAll(name, "-", "_"), value})
	}
	return settings, nil
}

// splitSwitches cuts at blanks; a backslash takes the next byte as it is.
func splitSwitches(text string) []string {
	var words []string
	var word []byte
	started := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case strings.IndexByte(" \t\n\r\f\v", c) >= 0:
			if started {
				words = append(words, string(word))
			}
			word, started = word[:0], false
			continue
		case c == '\\' && i+1 < len(text):
			i++
			c = text[i]
		}
		word, started = append(word, c), true
	}
	if started {
		words = append(words, string(word))
	}
	return words
}
