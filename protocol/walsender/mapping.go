package walsender

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Mapping is a line of pg_ident.conf: within a map it lets whom a proof calls System log in as User.
type Mapping struct {
	Map     string
	System  string // a name, or /regular expression
	User    string // a name, in which \1 stands for what the first group of the expression matched; or all
	pattern *regexp.Regexp
}

// NewMapping returns a mapping that is checked.
//
// Source: PostgreSQL src/backend/libpq/hba.c, parse_ident_line (13-18).
func NewMapping(m Mapping) (Mapping, error) {
	if m.Map == "" || m.System == "" || m.User == "" {
		return Mapping{}, errors.New("a mapping needs map, system and user")
	}
	text, isPattern := strings.CutPrefix(m.System, "/")
	var err error
	switch {
	case isPattern:
		if m.pattern, err = compile(text); err == nil && strings.Contains(m.User, `\1`) && m.pattern.NumSubexp() == 0 {
			err = fmt.Errorf(`%q has no group that \1 could stand for`, m.System)
		}
	case strings.Contains(m.User, `\1`):
		err = errors.New(`\1 needs a regular expression`)
	}
	return m, err
}

// allows reports whether whom a proof calls system may log in as user.
//
// Source: PostgreSQL src/backend/libpq/hba.c, check_ident_usermap (13-18; all as a user from 16 on).
func (m *Mapping) allows(system, user string) bool {
	if m.pattern == nil {
		return m.System == system && (m.User == user || m.User == keywordAll)
	}
	groups := m.pattern.FindStringSubmatch(system)
	if groups == nil {
		return false
	}
	want := m.User
	if len(groups) > 1 {
		want = strings.Replace(want, `\1`, groups[1], 1)
	}
	return want == user || m.User == keywordAll
}

// mapped reports whether the map lets system log in as user; without a map the two must be equal.
func (a *Access) mapped(name, system, user string) bool {
	if name == "" {
		return system == user
	}
	for i := range a.Mappings {
		if m := &a.Mappings[i]; m.Map == name && m.allows(system, user) {
			return true
		}
	}
	return false
}
