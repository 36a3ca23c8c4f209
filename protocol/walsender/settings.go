package walsender

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"walproxy/protocol"
)

// settings are a session's run-time parameters, by lower-case name.
type settings struct {
	major  int
	values map[string]string // what SHOW prints
	// upstream holds what the node learnt of its upstream's settings.
	upstream map[string]string
}

// definition is a parameter that every session has.
type definition struct {
	name     string // canonical spelling
	value    string // at the start
	since    int    // first major version that has it
	reported int    // first major version that reports it by ParameterStatus, 0 none
	check    func(string) (string, bool)
	check16  func(string) (string, bool) // instead of check from version 16 on; may be nil
}

// definitions are the parameters that clients set at startup or read. A value is checked as far as the session acts on it.
//
// Source: PostgreSQL src/backend/utils/misc/guc_tables.c, GUC_REPORT (13-18).
var definitions = []definition{
	{name: "application_name", reported: 13, check: printable, check16: escaped},
	{name: "client_encoding", value: "SQL_ASCII", reported: 13},
	{name: "DateStyle", value: "ISO, MDY", reported: 13, check: dateStyle},
	{name: "IntervalStyle", value: "postgres", reported: 13},
	{name: "integer_datetimes", value: "on", reported: 13, check: fixed},
	{name: "is_superuser", value: "off", reported: 13, check: fixed},
	{name: "server_encoding", value: "SQL_ASCII", reported: 13, check: fixed},
	{name: "server_version", reported: 13, check: fixed},
	{name: "session_authorization", reported: 13, check: fixed},
	{name: "standard_conforming_strings", value: "on", reported: 13, check: boolean},
	{name: "TimeZone", value: "UTC", reported: 13},
	{name: "default_transaction_read_only", value: "off", reported: 14, check: boolean},
	{name: "in_hot_standby", value: "off", since: 14, reported: 14, check: fixed},
	{name: "scram_iterations", value: "4096", since: 16, reported: 16},
	{name: "search_path", value: `"$user", public`, reported: 18},
	{name: "transaction_read_only", value: "off", check: boolean},
	{name: "wal_sender_timeout", check: milliseconds},
	{name: "bytea_output", value: "hex"},
	{name: "client_min_messages", value: "notice"},
	{name: "extra_float_digits", value: "1"},
	{name: "geqo", value: "on", check: boolean},
	{name: "idle_in_transaction_session_timeout", value: "0", check: milliseconds},
	{name: "idle_session_timeout", value: "0", since: 14, check: milliseconds},
	{name: "lc_messages", value: "C"},
	{name: "lock_timeout", value: "0", check: milliseconds},
	{name: "log_replication_commands", value: "off", check: boolean},
	{name: "row_security", value: "on", check: boolean},
	{name: "statement_timeout", value: "0", check: milliseconds},
	{name: "synchronize_seqscans", value: "on", check: boolean},
	{name: "synchronous_commit", value: "on"},
	{name: "tcp_keepalives_count", value: "0"},
	{name: "tcp_keepalives_idle", value: "0"},
	{name: "tcp_keepalives_interval", value: "0"},
	{name: "tcp_user_timeout", value: "0"},
	{name: "transaction_isolation", value: "read committed"},
}

func find(name string, major int) (definition, bool) {
	for _, d := range definitions {
		if strings.EqualFold(d.name, name) && d.since <= major {
			return d, true
		}
	}
	return definition{}, false
}

func newSettings(identity protocol.Identity, user string, timeout time.Duration) *settings {
	s := &settings{major: identity.Major(), values: map[string]string{}, upstream: identity.Settings}
	for _, d := range definitions {
		if d.since <= s.major {
			s.values[strings.ToLower(d.name)] = d.value
		}
	}
	s.values["server_version"] = identity.ServerVersion
	s.values["session_authorization"] = user
	s.values["wal_sender_timeout"] = formatMilliseconds(timeout.Milliseconds())
	for _, name := range []string{"in_hot_standby", "transaction_read_only"} {
		if value, known := identity.Settings[name]; known {
			s.values[name] = value
		}
	}
	return s
}

// apply takes the parameters of a startup packet, those of its command lines first.
func (s *settings) apply(st *startup) error {
	for _, line := range st.options {
		switches, err := parseSwitches(line)
		if err != nil {
			return err
		}
		for _, p := range switches {
			if err := s.set(p); err != nil {
				return err
			}
		}
	}
	for _, p := range st.settings {
		if err := s.set(p); err != nil {
			return err
		}
	}
	return nil
}

// set changes a parameter as a client may at startup; errors are FATAL there.
func (s *settings) set(p setting) error {
	name := strings.ToLower(p.name)
	d, known := find(name, s.major)
	if !known {
		switch {
		case strings.Contains(name, "."): // a parameter of an extension: taken as it is
			s.values[name] = p.value
			return nil
		case s.upstream[name] != "":
			return protocol.Fatalf(codeCantChange, "parameter \"%s\" cannot be changed now", p.name)
		}
		return protocol.Fatalf(protocol.CodeUndefinedObject, "unrecognized configuration parameter \"%s\"", p.name)
	}
	value := p.value
	if s.major >= 16 && d.check16 != nil {
		d.check = d.check16
	}
	if d.check != nil {
		checked, ok := d.check(value)
		if !ok && checked == notSettable {
			return protocol.Fatalf(codeCantChange, "parameter \"%s\" cannot be changed", d.name)
		}
		if !ok {
			return protocol.Fatalf(protocol.CodeInvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", d.name, value)
		}
		value = checked
	}
	s.values[name] = value
	return nil
}

const (
	codeCantChange = "55P02" // ERRCODE_CANT_CHANGE_RUNTIME_PARAM
	notSettable    = "\x00"
)

// show returns a parameter's canonical name and what SHOW prints for it.
func (s *settings) show(name string) (canonical, value string, ok bool) {
	lower := strings.ToLower(name)
	if value, ok = s.values[lower]; ok {
		if d, known := find(lower, s.major); known {
			lower = d.name
		}
		return lower, value, true
	}
	value, ok = s.upstream[lower]
	return lower, value, ok
}

// names returns the names of all parameters, sorted.
func (s *settings) names() []string {
	all := maps.Clone(s.values)
	for name := range s.upstream {
		all[name] = ""
	}
	return slices.Sorted(maps.Keys(all))
}

// reported returns the parameters that the server reports at the end of startup, in the order of versions up to 15.
func (s *settings) reported() []setting {
	var list []setting
	for _, d := range definitions {
		if d.reported != 0 && d.reported <= s.major {
			list = append(list, setting{d.name, s.values[strings.ToLower(d.name)]})
		}
	}
	return list
}

// walSenderTimeout returns the session's wal_sender_timeout; 0 means none.
func (s *settings) walSenderTimeout() time.Duration {
	n, _ := parseMilliseconds(s.values["wal_sender_timeout"]) // it was checked when it was set
	return time.Duration(n) * time.Millisecond
}

func fixed(string) (string, bool) { return notSettable, false }

// printable cuts a name and replaces what is not printable ASCII.
//
// Source: PostgreSQL src/common/string.c, pg_clean_ascii (13-18).
func printable(value string) (string, bool) {
	b := []byte(value[:min(len(value), protocol.MaxNameBytes)])
	for i, c := range b {
		if c < 0x20 || c > 0x7e {
			b[i] = '?'
		}
	}
	return string(b), true
}

// escaped cuts a name and spells what is not printable ASCII in hexadecimal.
func escaped(value string) (string, bool) {
	var b []byte
	for _, c := range []byte(value[:min(len(value), protocol.MaxNameBytes)]) {
		if c < 0x20 || c > 0x7e {
			b = fmt.Appendf(b, "\\x%02x", c)
		} else {
			b = append(b, c)
		}
	}
	return string(b), true
}

func boolean(value string) (string, bool) {
	on, ok := parseBool(value)
	if on {
		return "on", ok
	}
	return "off", ok
}

// parseBool reads PostgreSQL's spellings of a boolean and their unambiguous prefixes.
//
// Source: PostgreSQL src/backend/utils/adt/bool.c, parse_bool_with_len (13-18).
func parseBool(value string) (on, ok bool) {
	value = strings.ToLower(value)
	switch {
	case value == "":
		return false, false
	case strings.HasPrefix("true", value), strings.HasPrefix("yes", value), value == "on", value == "1":
		return true, true
	case strings.HasPrefix("false", value), strings.HasPrefix("no", value), value == "off", value == "of", value == "0":
		return false, true
	}
	return false, false
}

// dateStyle returns the canonical form of an output style and a field order, of which either may be left out.
func dateStyle(value string) (string, bool) {
	style, order := "ISO", "MDY"
	for word := range strings.SplitSeq(value, ",") {
		switch word = strings.ToUpper(strings.TrimSpace(word)); word {
		case "ISO", "SQL", "GERMAN":
			style = word
		case "POSTGRES", "POSTGRESQL":
			style = "Postgres"
		case "MDY", "DMY", "YMD":
			order = word
		case "US", "NONEURO", "NONEUROPEAN":
			order = "MDY"
		case "EURO", "EUROPEAN":
			order = "DMY"
		default:
			return "", false
		}
	}
	if style == "GERMAN" {
		style = "German"
	}
	return style + ", " + order, true
}

func milliseconds(value string) (string, bool) {
	n, ok := parseMilliseconds(value)
	return formatMilliseconds(n), ok
}

var timeUnits = []struct {
	name string
	ms   int64
}{{"d", 24 * 3600 * 1000}, {"h", 3600 * 1000}, {"min", 60 * 1000}, {"s", 1000}, {"ms", 1}}

// parseMilliseconds reads a number with a unit of time; without one it counts milliseconds.
func parseMilliseconds(value string) (int64, bool) {
	value = strings.TrimSpace(value)
	end := 0
	for end < len(value) && (value[end] >= '0' && value[end] <= '9' || value[end] == '.') {
		end++
	}
	n, err := strconv.ParseFloat(value[:end], 64)
	if err != nil {
		return 0, false
	}
	switch unit := strings.TrimSpace(value[end:]); unit {
	case "":
	case "us":
		n /= 1000
	default:
		i := slices.IndexFunc(timeUnits, func(u struct {
			name string
			ms   int64
		}) bool {
			return u.name == unit
		})
		if i < 0 {
			return 0, false
		}
		n *= float64(timeUnits[i].ms)
	}
	if n > math.MaxInt32 {
		return 0, false
	}
	return int64(math.RoundToEven(n)), true
}

// formatMilliseconds prints a time in the largest unit that divides it.
func formatMilliseconds(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range timeUnits {
		if n%u.ms == 0 {
			return fmt.Sprintf("%d%s", n/u.ms, u.name)
		}
	}
	return ""
}
