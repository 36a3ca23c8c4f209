package walsender

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/protocol"
)

func TestMilliseconds(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "1": "1ms", "1000": "1s", "60000": "1min", "90s": "90s", "1.5s": "1500ms", "2 min": "2min", "24h": "1d", "1d": "1d", "500us": "0",
	} {
		if got, ok := milliseconds(text); !ok || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "s", "-1", "1x", "1 sec", "25d", "1.2.3", "1e3"} {
		if got, ok := milliseconds(text); ok {
			t.Errorf("%q: %q, want an error", text, got)
		}
	}
}

func TestSplitSwitches(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "  ": nil, "-c a=b": {"-c", "a=b"}, `-ca=b\ c  d`: {"-ca=b c", "d"}, `\\`: {`\`}, `a\`: {`a\`}, "\ta\nb": {"a", "b"},
	} {
		if got := splitSwitches(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSettings(t *testing.T) {
	identity := protocol.Identity{ServerVersion: "18.4", Settings: map[string]string{"wal_level": "replica", "in_hot_standby": "on"}}
	s := newSettings(identity, "u", time.Minute)
	for _, test := range []struct{ name, value, shown, code string }{
		{"WAL_SENDER_TIMEOUT", "2000", "2s", ""},
		{"dateStyle", "german", "German, MDY", ""},
		{"datestyle", "iso, euro", "ISO, DMY", ""},
		{"datestyle", "x", "", "22023"},
		{"a.B", "c", "c", ""},
		{"wal_level", "minimal", "", "55P02"},
		{"in_hot_standby", "off", "", "55P02"},
		{"standard_conforming_strings", "TRUE", "on", ""},
		{"standard_conforming_strings", "maybe", "", "22023"},
		{"what", "x", "", "42704"},
	} {
		err := s.set(setting{test.name, test.value})
		if e, _ := err.(*protocol.Error); (e == nil) != (test.code == "") || e != nil && (e.Code != test.code || e.Severity != "FATAL") {
			t.Errorf("%s = %s: %v, want SQLSTATE %q", test.name, test.value, err, test.code)
		}
		if _, got, _ := s.show(test.name); test.code == "" && got != test.shown {
			t.Errorf("%s = %s: shown as %q, want %q", test.name, test.value, got, test.shown)
		}
	}
	if canonical, value, ok := s.show("DATESTYLE"); !ok || canonical != "DateStyle" || value != "ISO, DMY" {
		t.Errorf("%s %s %v", canonical, value, ok)
	}
	if _, value, _ := s.show("in_hot_standby"); value != "on" {
		t.Errorf("in_hot_standby is %q", value)
	}
	if s.walSenderTimeout() != 2*time.Second {
		t.Errorf("timeout %s", s.walSenderTimeout())
	}
	if names := s.names(); !slices.Contains(names, "wal_level") || !slices.Contains(names, "a.b") || !slices.IsSorted(names) {
		t.Errorf("%q", names)
	}
}

func TestReadUsers(t *testing.T) {
	v, err := NewVerifier("x")
	if err != nil {
		t.Fatal(err)
	}
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "users")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	users, err := ReadUsers(write("# comment\n\na:plain:with:colons \r\nb:" + v.secret() + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(users.verifiers) != 2 || users.verifiers["b"].secret() != v.secret() {
		t.Error("the verifier is another one")
	}
	for name, content := range map[string]string{
		"no colon": "secretword", "empty name": ":secretword", "empty secret": "a:", "twice": "a:secretword\na:secretword",
		"bad verifier": "a:SCRAM-SHA-256$secretword", "short key": "a:SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA", "too long": strings.Repeat("#", maxUsersBytes+1),
		"iterations": "a:SCRAM-SHA-256$0:c2FsdA==$" + strings.Repeat("A", 43) + "=:" + strings.Repeat("A", 43) + "=",
	} {
		if _, err := ReadUsers(write(content)); err == nil || strings.Contains(err.Error(), "secretword") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ReadUsers("/nonexistent"); err == nil {
		t.Error("a file that does not exist was read")
	}
	server := &Server{mockKey: []byte("key")}
	if a, b := server.mock("nobody"), server.mock("nobody"); a.Salt != b.Salt || a.Iters != 4096 || len(a.Salt) != saltBytes {
		t.Error("an unknown user shows")
	}
}
