package walreceiver

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func parse(t *testing.T, conninfo string) *session {
	t.Helper()
	o := Options{Conninfo: conninfo}
	if err := o.applyDefaults(); err != nil {
		t.Fatal(err)
	}
	s, err := parseConninfo(&o)
	if err != nil {
		t.Fatalf("%s: %v", conninfo, err)
	}
	return s
}

// TestConninfo: strings, URIs, environment, service and password files end in the same settings; the server never gets a
// parameter that it does not know.
func TestConninfo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	passfile := write("pgpass", "h1:5433:replication:u:secret\nh1:5433:*:u:wrong\nh2:*:*:u:other\n")
	t.Setenv("PGSERVICEFILE", write("services", "[up]\nhost=h1,h2\nport=5433\nuser=u\ntarget_session_attrs=standby\n"))
	t.Setenv("PGPASSFILE", passfile)
	for conninfo, want := range map[string]target{
		"host=h1,h2 port=5433 user=u": targetAny,
		"host=h1,h2 port=5433 user=u dbname=mine target_session_attrs=read-write":          targetReadWrite,
		"postgres://u@h1:5433,h2:5433/?target_session_attrs=primary":                       targetPrimary,
		"postgresql://u@h1:5433,h2:5433/mine?target_session_attrs=prefer-standby":          targetPreferStandby,
		"postgresql://u@h1:5433,h2:5433":                                                   targetAny,
		"service=up":                                                                       targetStandby,
		"service=up target_session_attrs=read-only":                                        targetReadOnly,
		"host=h1,h2 port=5433,5433 user=u keepalives=0 gssencmode=prefer sslcompression=0": targetAny,
	} {
		s := parse(t, conninfo)
		hosts := s.hosts()
		c, last := hosts[0], hosts[len(hosts)-1]
		if c.Host != "h1" || c.Port != 5433 || c.User != "u" || c.Database != "replication" || c.Password != "secret" {
			t.Errorf("%s: %s@%s:%d/%s, password %q", conninfo, c.User, c.Host, c.Port, c.Database, c.Password)
		}
		if len(hosts) != 2 || last.Host != "h2" || last.Port != 5433 || last.Password != "other" {
			t.Errorf("%s: %d hosts, the last is %s:%d with %q", conninfo, len(hosts), last.Host, last.Port, last.Password)
		}
		if s.target != want {
			t.Errorf("%s: target %s, want %s", conninfo, s.target, want)
		}
		params := map[string]string{"replication": "true", "application_name": "walproxy"}
		if len(c.RuntimeParams) != len(params) || c.RuntimeParams["replication"] != "true" || c.RuntimeParams["application_name"] != "walproxy" {
			t.Errorf("%s: startup parameters %v", conninfo, c.RuntimeParams)
		}
	}
	t.Setenv("PGTARGETSESSIONATTRS", "primary")
	t.Setenv("PGAPPNAME", "mine")
	if s := parse(t, "host=h1"); s.target != targetPrimary || s.config.RuntimeParams["application_name"] != "mine" {
		t.Errorf("from the environment: %s, %v", s.target, s.config.RuntimeParams)
	}
	t.Setenv("PGAPPNAME", "")
	if s := parse(t, "host=h1 fallback_application_name=other options='-c wal_sender_timeout=2s'"); s.config.RuntimeParams["application_name"] != "other" ||
		s.config.RuntimeParams["options"] != "-c wal_sender_timeout=2s" {
		t.Errorf("parameters %v", s.config.RuntimeParams)
	}
	if s := parse(t, "host=h1 keepalives_idle=7 keepalives_interval=3 keepalives_count=2"); s.alive.Idle != 7*time.Second ||
		s.alive.Interval != 3*time.Second || s.alive.Count != 2 || !s.alive.Enable {
		t.Errorf("keepalive %+v", s.alive)
	}
}

// TestAccepts is the table of target_session_attrs.
func TestAccepts(t *testing.T) {
	for want, accepts := range map[target][3]bool{ // of a primary, a read-only primary, a standby
		targetAny:           {true, true, true},
		targetReadWrite:     {true, false, false},
		targetReadOnly:      {false, true, true},
		targetPrimary:       {true, true, false},
		targetStandby:       {false, false, true},
		targetPreferStandby: {true, true, true},
	} {
		got := [3]bool{want.accepts(false, false), want.accepts(false, true), want.accepts(true, true)}
		if got != accepts {
			t.Errorf("%s accepts %v, want %v", want, got, accepts)
		}
	}
}

// TestUnits: sizes and times as SHOW prints them.
func TestUnits(t *testing.T) {
	for text, want := range map[string]uint64{
		"16MB": 16 << 20, "1GB": 1 << 30, "8192": 8192, "64kB": 64 << 10, "": 0, "MB": 0, "-1": 0, "99999999999GB": 0, "1 MB": 0,
	} {
		if got := parseBytes(text); got != want {
			t.Errorf("%q is %d bytes, want %d", text, got, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"1min": time.Minute, "60s": time.Minute, "1500ms": 1500 * time.Millisecond, "0": 0, "2000": 2 * time.Second, "1d": 24 * time.Hour,
		"": 0, "x": 0, "-1": 0, "99999999999d": 0, "4000000000d": 0,
	} {
		if got := parseDuration(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
