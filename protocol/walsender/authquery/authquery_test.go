package authquery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const verifier = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="

// script is a Lookup with a server and a clock of its own.
type script struct {
	*Lookup
	t     *testing.T
	at    time.Time
	rows  [][][]byte
	err   error
	asked int
}

func newScript(t *testing.T) *script {
	l := New(Options{Conninfo: "host=h user=u", SQL: DefaultSQL, Cache: 10 * time.Second, Stale: time.Hour}, nil)
	s := &script{Lookup: l, t: t, at: time.Unix(1e9, 0)}
	l.now = func() time.Time { return s.at }
	l.ask = func(context.Context, string) ([][][]byte, error) {
		s.asked++
		return s.rows, s.err
	}
	return s
}

// look wants this answer and this number of questions since the last call.
func (s *script) look(user, want string, asked int) {
	s.t.Helper()
	s.asked = 0
	role, known, err := s.Lookup.Lookup(context.Background(), user)
	got := fmt.Sprint(known, role.NoReplication)
	if err != nil {
		got = "error"
	}
	if got != want || s.asked != asked {
		s.t.Errorf("%s: %s (%v) after %d questions, want %s after %d", user, got, err, s.asked, want, asked)
	}
}

// TestLookup: answers are remembered, for longer while the server is away, and it is not asked again at once then.
func TestLookup(t *testing.T) {
	s := newScript(t)
	s.rows = [][][]byte{{[]byte(verifier), []byte("t")}}
	s.look("a", "true false", 1)
	s.look("a", "true false", 0)
	s.rows[0][1] = []byte("f")
	s.at = s.at.Add(11 * time.Second)
	s.look("a", "true true", 1)
	s.rows = nil
	s.look("b", "false false", 1)
	s.look("b", "false false", 0)
	s.at, s.err = s.at.Add(time.Minute), errors.New("away")
	s.look("a", "true true", 1)
	s.look("a", "true true", 0)
	s.look("c", "error", 0)
	s.at = s.at.Add(2 * time.Hour)
	s.look("a", "error", 1)
	s.at, s.err = s.at.Add(time.Minute), nil
	s.look("a", "false false", 1)
	for i := range 3 * maxRemembered {
		s.look(fmt.Sprint(i), "false false", 1)
	}
	if len(s.answers) > maxRemembered {
		t.Errorf("%d users are remembered", len(s.answers))
	}
}

func TestParse(t *testing.T) {
	text := func(s string) []byte { return []byte(s) }
	for name, rows := range map[string][][][]byte{
		"two": {{text(verifier)}, {text(verifier)}}, "no column": {{}}, "three columns": {{text(verifier), nil, nil}}, "password": {{text("SECRET")}},
	} {
		if _, err := parse(rows); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, err := parse([][][]byte{{nil, text("t")}}); err != nil || a.known {
		t.Errorf("no password: %+v, %v", a, err)
	}
	if a, err := parse([][][]byte{{text("md5" + strings.Repeat("0", 32))}}); err != nil || !a.known || !a.role.Verifier.IsMD5() || a.role.NoReplication {
		t.Errorf("MD5: %+v, %v", a, err)
	}
}
