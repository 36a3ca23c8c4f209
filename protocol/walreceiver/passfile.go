package walreceiver

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgservicefile"
)

// loosePassfile returns the error that a password file deserves which others can read; nil if it is good, or is not there.
// A credential that systemd hands to the service counts as good although an access list shows as a right of the group: only
// the service reaches the directory.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, passwordFromFile (13-18).
func loosePassfile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil // libpq says nothing either
	}
	others := os.FileMode(0o077)
	if given := os.Getenv("CREDENTIALS_DIRECTORY"); given != "" && filepath.Dir(path) == filepath.Clean(given) {
		others = 0o007
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("password file %s is not a plain file", path)
	case info.Mode()&others != 0:
		return fmt.Errorf("password file %s has group or world access; permissions should be u=rw (0600) or less", path)
	}
	return nil
}

// passfile returns the password file that a conninfo leads to: its own, its service's, PGPASSFILE's, or the default.
func passfile(conninfo string) string {
	if path := setting(conninfo, "passfile"); path != "" {
		return path
	}
	home, _ := os.UserHomeDir() // without one, the files have no default
	service := first(setting(conninfo, "service"), os.Getenv("PGSERVICE"))
	if service != "" {
		file, err := pgservicefile.ReadServicefile(first(setting(conninfo, "servicefile"), os.Getenv("PGSERVICEFILE"), filepath.Join(home, ".pg_service.conf")))
		if err == nil {
			if s, err := file.GetService(service); err == nil && s.Settings["passfile"] != "" {
				return s.Settings["passfile"]
			}
		}
	}
	return first(os.Getenv("PGPASSFILE"), filepath.Join(home, ".pgpass"))
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// withoutPassfile makes a conninfo use no password file.
func withoutPassfile(conninfo string) string {
	if !isURI(conninfo) {
		return conninfo + " passfile=" + os.DevNull // the last value of a keyword counts
	}
	base, query, _ := strings.Cut(conninfo, "?")
	values, _ := url.ParseQuery(query) // pgconn has read it before
	values.Set("passfile", os.DevNull)
	return base + "?" + values.Encode()
}

func isURI(conninfo string) bool {
	return strings.HasPrefix(conninfo, "postgres://") || strings.HasPrefix(conninfo, "postgresql://")
}

// setting returns the value that a conninfo gives to a keyword; empty if none. The conninfo is one that pgconn has accepted.
//
// Source: PostgreSQL src/interfaces/libpq/fe-connect.c, conninfo_parse (13-18).
func setting(conninfo, keyword string) (value string) {
	if isURI(conninfo) {
		_, query, _ := strings.Cut(conninfo, "?")
		values, _ := url.ParseQuery(query)
		return values.Get(keyword)
	}
	for rest := conninfo; ; {
		name, after, found := strings.Cut(rest, "=")
		if !found {
			return value
		}
		var got string
		got, rest = cutValue(strings.TrimLeft(after, blanks))
		if strings.Trim(name, blanks) == keyword {
			value = got
		}
	}
}

const blanks = " \t\n\r\v\f"

// cutValue reads a value, which may be quoted, and returns what follows it. A backslash takes the next byte as it is.
func cutValue(text string) (value, rest string) {
	end := blanks
	if strings.HasPrefix(text, "'") {
		end, text = "'", text[1:]
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.IndexByte(end, c) >= 0:
			return b.String(), text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
