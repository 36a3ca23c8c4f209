package protocol

import (
	"strconv"
	"strings"
)

// tokenKind tells the tokens of a replication command apart.
type tokenKind int

const (
	tokenEnd     tokenKind = iota
	tokenKeyword           // text is the keyword, upper case
	tokenName              // text is the name, down-cased or unquoted, cut to MaxNameBytes
	tokenString            // text is the unquoted string
	tokenNumber            // number
	tokenLSN               // lsn
	tokenSymbol            // text is one of , ; ( ) .
	tokenBad               // nothing that any command has
)

type token struct {
	kind   tokenKind
	text   string
	number uint32
	lsn    LSN
}

// scanner cuts a replication command into tokens.
//
// Source: PostgreSQL src/backend/replication/repl_scanner.l (13-18).
type scanner struct {
	rest    string
	major   int
	notices []*Error // of names that were cut
	failure string   // what is wrong with a tokenBad, if there is a word for it
}

func (s *scanner) next() token {
	s.rest = strings.TrimLeft(s.rest, " \t\n\r\f\v")
	if s.rest == "" {
		return token{kind: tokenEnd}
	}
	// The longest match wins, so that "A0/10" is an LSN and "A0" a name.
	if n := lenLSN(s.rest); n > 0 {
		return s.scanLSN(n)
	}
	switch c := s.rest[0]; {
	case c == '"', c == '\'':
		return s.scanQuoted(c)
	case c >= '0' && c <= '9':
		return s.scanNumber()
	case isNameStart(c):
		return s.scanWord()
	case strings.IndexByte(",;().", c) >= 0:
		s.rest = s.rest[1:]
		return token{kind: tokenSymbol, text: string(c)}
	}
	return s.bad()
}

// bad ends the scan: no command goes on behind a token that does not exist.
func (s *scanner) bad() token {
	s.rest = ""
	return token{kind: tokenBad}
}

// lenLSN returns the length of the LSN at the start of text, 0 if there is none. Its halves may be of any length here.
func lenLSN(text string) int {
	high := lenHex(text)
	if high == 0 || high == len(text) || text[high] != '/' {
		return 0
	}
	if low := lenHex(text[high+1:]); low > 0 {
		return high + 1 + low
	}
	return 0
}

func lenHex(text string) int {
	n := 0
	for n < len(text) {
		c := text[n]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			break
		}
		n++
	}
	return n
}

// scanLSN reads n bytes as an LSN. A half of more than eight digits is refused; PostgreSQL reads such a position as
// another one.
func (s *scanner) scanLSN(n int) token {
	lsn, err := ParseLSN(s.rest[:n])
	if err != nil {
		return s.bad()
	}
	s.rest = s.rest[n:]
	return token{kind: tokenLSN, lsn: lsn}
}

// scanNumber reads an unsigned 32-bit number. A larger one is refused; PostgreSQL takes its lower bits.
func (s *scanner) scanNumber() token {
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	number, err := strconv.ParseUint(s.rest[:n], 10, 32)
	if err != nil {
		return s.bad()
	}
	s.rest = s.rest[n:]
	return token{kind: tokenNumber, number: uint32(number)}
}

// scanQuoted reads a quoted name or string, in which a doubled quote stands for one.
func (s *scanner) scanQuoted(quote byte) token {
	var text strings.Builder
	for i := 1; i < len(s.rest); i++ {
		if s.rest[i] != quote {
			text.WriteByte(s.rest[i])
			continue
		}
		if i+1 < len(s.rest) && s.rest[i+1] == quote {
			text.WriteByte(quote)
			i++
			continue
		}
		s.rest = s.rest[i+1:]
		if quote == '"' {
			return token{kind: tokenName, text: s.cut(text.String())}
		}
		return token{kind: tokenString, text: text.String()}
	}
	s.failure = "unterminated quoted string"
	return s.bad()
}

func (s *scanner) scanWord() token {
	n := 1
	for n < len(s.rest) && (isNameStart(s.rest[n]) || s.rest[n] >= '0' && s.rest[n] <= '9' || s.rest[n] == '$') {
		n++
	}
	word := s.rest[:n]
	s.rest = s.rest[n:]
	if isKeyword(word, s.major) {
		return token{kind: tokenKeyword, text: word}
	}
	return token{kind: tokenName, text: s.cut(lowerASCII(word))}
}

// cut shortens a name to MaxNameBytes, with a notice as PostgreSQL sends it.
//
// Source: PostgreSQL src/backend/parser/scansup.c, truncate_identifier (13-18).
func (s *scanner) cut(name string) string {
	if len(name) <= MaxNameBytes {
		return name
	}
	short := name[:MaxNameBytes]
	notice := Errorf(CodeNameTooLong, "identifier \"%s\" will be truncated to \"%s\"", name, short)
	notice.Severity = "NOTICE"
	s.notices = append(s.notices, notice)
	return short
}

func isNameStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 || c == '_'
}

// lowerASCII leaves bytes beyond ASCII alone, as PostgreSQL does without a database.
func lowerASCII(text string) string {
	return string(mapASCII([]byte(text)))
}

func mapASCII(b []byte) []byte {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

// isKeyword reports whether a word, in upper case only, is a keyword of the major version's grammar.
func isKeyword(word string, major int) bool {
	switch word {
	case "BASE_BACKUP", "IDENTIFY_SYSTEM", "SHOW", "START_REPLICATION", "CREATE_REPLICATION_SLOT", "DROP_REPLICATION_SLOT",
		"TIMELINE_HISTORY", "SLOT", "PHYSICAL", "LOGICAL", "RESERVE_WAL", "TEMPORARY", "WAIT", "TIMELINE", "EXPORT_SNAPSHOT",
		"NOEXPORT_SNAPSHOT", "USE_SNAPSHOT":
		return true
	case "LABEL", "PROGRESS", "FAST", "NOWAIT", "WAL", "MAX_RATE", "TABLESPACE_MAP", "NOVERIFY_CHECKSUMS", "MANIFEST",
		"MANIFEST_CHECKSUMS":
		return major < 15
	case "TWO_PHASE":
		return major >= 14
	case "READ_REPLICATION_SLOT":
		return major >= 15
	case "ALTER_REPLICATION_SLOT", "UPLOAD_MANIFEST":
		return major >= 17
	}
	return false
}
