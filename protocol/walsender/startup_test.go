package walsender_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zapcore"

	"walproxy/protocol/walsender"
)

const levelOfTests = zapcore.WarnLevel

func TestStartup(t *testing.T) {
	const ready = "R(0) K(4) Z(I)"
	tests := []struct {
		name       string
		version    uint32
		major      string
		parameters []string
		link       bool
		want       string
	}{
		{name: "plain", want: ready},
		{name: "true", parameters: []string{"replication", "true"}, want: ready},
		{name: "on", parameters: []string{"replication", "on"}, want: ready},
		{name: "1", parameters: []string{"replication", "1"}, want: ready},
		{name: "yes", parameters: []string{"replication", "yes"}, want: ready},
		{name: "y", parameters: []string{"replication", "y"}, want: ready},
		{name: "TRUE", parameters: []string{"replication", "TRUE"}, want: ready},
		{name: "database", parameters: []string{"replication", "database", "database", "db"}, want: ready},
		{name: "off", parameters: []string{"replication", "off"}, want: "E(FATAL 0A000) closed"},
		{name: "false", parameters: []string{"replication", "0"}, want: "E(FATAL 0A000) closed"},
		{name: "bogus", parameters: []string{"replication", "maybe"}, want: "E(FATAL 22023) closed"},
		{name: "ambiguous", parameters: []string{"replication", "o"}, want: "E(FATAL 22023) closed"},
		{name: "no user", parameters: []string{"user", ""}, want: "E(FATAL 28000) closed"},
		{name: "3.2 to 18", version: 3<<16 | 2, major: "18.4", want: "R(0) K(32) Z(I)"},
		{name: "3.2 to 17", version: 3<<16 | 2, major: "17.10", want: "v(30000 []) " + ready},
		{name: "3.9 to 18", version: 3<<16 | 9, major: "18.4", want: "v(30002 []) R(0) K(32) Z(I)"},
		{name: "4.0", version: 4 << 16, want: "E(FATAL 0A000) closed"},
		{name: "extension", parameters: []string{"_pq_.x", "1"}, want: "v(30000 [_pq_.x]) " + ready},
		{name: "link off", parameters: []string{"_pq_.walproxy_link", "1"}, want: "v(30000 [_pq_.walproxy_link]) " + ready},
		{name: "link on", link: true, parameters: []string{"_pq_.walproxy_link", "1"}, want: ready},
		{name: "link and another", link: true, parameters: []string{"_pq_.walproxy_link", "1", "_pq_.y", ""}, want: "v(30000 [_pq_.y]) " + ready},
		{name: "unknown setting", parameters: []string{"nonsense", "1"}, want: "R(0) E(FATAL 42704) closed"},
		{name: "setting of an extension", parameters: []string{"some.thing", "1"}, want: ready},
		{name: "bad value", parameters: []string{"wal_sender_timeout", "soon"}, want: "R(0) E(FATAL 22023) closed"},
		{name: "fixed setting", parameters: []string{"server_version", "1"}, want: "R(0) E(FATAL 55P02) closed"},
		{name: "options", parameters: []string{"options", `-c wal_sender_timeout=2s -cdatestyle=iso --application-name=a\ b`}, want: ready},
		{name: "bad options", parameters: []string{"options", "-x"}, want: "R(0) E(FATAL 42601) closed"},
		{name: "options without value", parameters: []string{"options", "-c x"}, want: "R(0) E(FATAL 42601) closed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			version := test.major
			if version == "" {
				version = "15.18"
			}
			h := servePipe(t, newNode(version, 0x1000000, nil), walsender.Options{Link: test.link})
			c := newClient(t, h.dial(t))
			if test.version == 0 {
				test.version = 3 << 16
			}
			c.startup(test.version, append([]string{"user", "u", "replication", "true"}, test.parameters...)...)
			got := c.until('Z')
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if _, linked := c.status["walproxy_link"]; linked != test.link {
				t.Errorf("walproxy_link is %q", c.status["walproxy_link"])
			}
		})
	}
}

func TestParameterStatus(t *testing.T) {
	sets := map[string]string{
		"13.23": "DateStyle IntervalStyle TimeZone application_name client_encoding integer_datetimes is_superuser server_encoding server_version session_authorization standard_conforming_strings",
	}
	sets["14.23"] = sets["13.23"] + " default_transaction_read_only in_hot_standby"
	sets["15.18"] = sets["14.23"]
	sets["16.14"] = sets["15.18"] + " scram_iterations"
	sets["17.10"] = sets["16.14"]
	sets["18.4"] = sets["17.10"] + " search_path"
	for version, names := range sets {
		h := servePipe(t, newNode(version, 0x1000000, nil), walsender.Options{})
		c := h.connect(t, "application_name", "tëst", "options", "-c timezone=Europe/Berlin -c DateStyle=iso,dmy")
		want := map[string]string{"server_version": version, "session_authorization": "postgres", "integer_datetimes": "on",
			"server_encoding": "SQL_ASCII", "application_name": "t??st", "TimeZone": "Europe/Berlin", "DateStyle": "ISO, DMY"}
		if version >= "16" {
			want["application_name"] = `t\xc3\xabst`
		}
		for _, name := range strings.Fields(names) {
			got, ok := c.status[name]
			if value, checked := want[name]; !ok || checked && got != value {
				t.Errorf("%s: %s is %q, want %q", version, name, got, value)
			}
		}
		if len(c.status) != len(strings.Fields(names)) {
			t.Errorf("%s: %v", version, c.status)
		}
	}
}

func TestEncryptionRequests(t *testing.T) {
	ssl, gss := packet(80877103, nil), packet(80877104, nil)
	for name, requests := range map[string][][]byte{"ssl": {ssl}, "gss": {gss}, "both": {ssl, gss}, "gss first": {gss, ssl}} {
		h := servePipe(t, newNode("15.18", 0x1000000, nil), walsender.Options{})
		c := newClient(t, h.dial(t))
		for _, request := range requests {
			c.raw(request)
			answer := make([]byte, 1)
			if _, err := io.ReadFull(c.conn, answer); err != nil || answer[0] != 'N' {
				t.Fatalf("%s: %q, %v", name, answer, err)
			}
		}
		c.startup(3<<16, "user", "u", "replication", "1")
		if got := c.until('Z'); got != "R(0) K(4) Z(I)" {
			t.Errorf("%s: %s", name, got)
		}
		again := newClient(t, h.dial(t))
		again.raw(requests[0])
		if _, err := io.ReadFull(again.conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		again.raw(requests[0])
		if got := again.until('Z'); got != "E(FATAL 0A000) closed" {
			t.Errorf("%s twice: %s", name, got)
		}
	}
}

func TestBadStartupPackets(t *testing.T) {
	silent := ""
	long := append(packet(3<<16, bytes.Repeat([]byte{'x'}, 10001-4)), 0)
	tests := map[string]struct {
		bytes []byte
		want  string // before the end
	}{
		"junk":           {[]byte("GET / HTTP/1.1\r\n\r\n"), silent},
		"too short":      {[]byte{0, 0, 0, 7, 0, 3, 0}, silent},
		"negative":       {[]byte{0xff, 0xff, 0xff, 0xff, 0, 3, 0, 0}, silent},
		"too long":       {long[:12], silent},
		"unterminated":   {packet(3<<16, []byte("user\x00u\x00")), "E(FATAL 08P01) "},
		"no value":       {packet(3<<16, []byte("user\x00")), "E(FATAL 08P01) "},
		"bytes behind":   {packet(3<<16, []byte("user\x00u\x00\x00\x00")), "E(FATAL 08P01) "},
		"empty":          {packet(3<<16, nil), "E(FATAL 08P01) "},
		"cancel, short":  {packet(80877102, []byte{0, 0, 0, 1}), silent},
		"cancel, long":   {packet(80877102, make([]byte, 12)), silent},
		"cancel, no pid": {packet(80877102, make([]byte, 8)), silent},
	}
	h := serveTCP(t, newNode("15.18", 0x1000000, nil), walsender.Options{})
	witness := h.connect(t)
	for name, test := range tests {
		c := newClient(t, h.dial(t))
		c.raw(test.bytes)
		if got := c.until('Z'); got != test.want+"closed" {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	if got := witness.run("SHOW wal_block_size"); got != "T(wal_block_size:25) D(8192) C(SHOW) Z(I)" {
		t.Errorf("another session: %s", got)
	}
}

func TestUpstreamUnknown(t *testing.T) {
	n := newNode("15.18", 0x1000000, nil)
	n.known = false
	h := servePipe(t, n, walsender.Options{})
	c := newClient(t, h.dial(t))
	c.startup(3<<16, "user", "u", "replication", "1")
	if got := c.until('Z'); got != "E(FATAL 57P03) closed" {
		t.Error(got)
	}
}

func TestConnectionLimit(t *testing.T) {
	h := serveTCP(t, newNode("15.18", 0x1000000, nil), walsender.Options{MaxConnections: 2})
	h.connect(t)
	h.connect(t)
	for _, want := range []string{"E(FATAL 53300) closed"} {
		c := newClient(t, h.dial(t))
		c.startup(3<<16, "user", "u", "replication", "1")
		if got := c.until('Z'); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAuthenticationTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users, err := walsender.NewUsers(map[string]string{"u": "secret"})
		if err != nil {
			t.Fatal(err)
		}
		h := servePipe(t, newNode("15.18", 0x1000000, nil), walsender.Options{Access: passwords(users), AuthenticationTimeout: 20 * time.Second})
		began := time.Now()
		silent, slow := newClient(t, h.dial(t)), newClient(t, h.dial(t))
		slow.startup(3<<16, "user", "u", "replication", "1")
		if got := slow.until('Z'); got != "R([SCRAM-SHA-256]) E(FATAL 57014) closed" || time.Since(began) != 20*time.Second {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		if got := silent.until('Z'); got != "closed" || time.Since(began) != 20*time.Second {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		h.stop()
	})
}

func TestPIDsAreUnique(t *testing.T) {
	h := servePipe(t, newNode("15.18", 0x1000000, nil), walsender.Options{MaxConnections: 300})
	seen := map[uint32]bool{}
	for range 300 {
		c := h.connect(t)
		if seen[c.pid] || c.pid == 0 || c.pid > 1<<31-1 {
			t.Fatalf("pid %d", c.pid)
		}
		seen[c.pid] = true
	}
}
