package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"walproxy/recompress"
	"walproxy/slots"
)

const verifier = "SCRAM-SHA-256$4096:c2FsdHNhbHRzYWx0c2FsdA==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="

// enough is what a file must hold at least.
const enough = "upstream: {conninfo: host=h user=u}\ndata: {dir: /d}\n"

func TestProblems(t *testing.T) {
	dir := t.TempDir()
	missing, users, secrets := filepath.Join(dir, "missing"), filepath.Join(dir, "users"), filepath.Join(dir, "secrets")
	for file, content := range map[string]string{users: "# users\na:" + verifier + "\nb:password\n", secrets: "a:x\nSECRET\n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		name, yaml string
		want       []string // key: beginning of the problem
	}{
		{"empty", "", []string{"upstream.conninfo: is missing", "data.dir: is missing"}},
		{"only a comment", "# nothing\n", []string{"upstream.conninfo: is missing", "data.dir: is missing"}},
		{"not YAML", "a: [", []string{": yaml:", "upstream.conninfo: ", "data.dir: "}},
		{"a list", "- a", []string{": want a section", "upstream.conninfo: ", "data.dir: "}},
		{"two documents", enough + "---\na: b\n", []string{": more than one"}},
		{"empty section", enough + "spool:\n", nil},
		{"unknown keys", enough + "spol: {}\nspool: {kep: 1GiB, zzz: 1}\nX: 1\n",
			[]string{"spol: unknown key; do you mean spool?", "spool.kep: unknown key; do you mean keep?", "spool.zzz: unknown key", "X: unknown key"}},
		{"twice", enough + "log: {level: info, level: warn}\n", []string{"log.level: is given twice"}},
		{"wrong shapes", enough + "spool: 7\nhttp: {address: [a]}\nlisten: {addresses: x:1, auth: {users: {}}, link: }\n",
			[]string{"spool: want a section", "http.address: want a single value", "listen.addresses: want a list", "listen.auth.users: want a list", "listen.link: has no value"}},
		{"alias", enough + "log: {level: &l info, format: *l}\n", []string{"log.format: aliases"}},
		{"values", enough + `
recompress: {codec: gzip, level: 4, reset_distance: 3MiB}
spool: {cap: 16GB, when_full: drop, keep: -1, seal: maybe, fsync: 2}
log: {level: loud, format: xml}
listen: {wal_sender_timeout: 10, max_connections: many}
upstream: {conninfo: host=h, status_interval: 0s, link: on}
`, []string{"upstream: is given twice",
			`recompress.codec: unknown codec "gzip": want auto, model, zstd, lz4 or none`, "recompress.level: 4 is not one of [1 3 5 10 16]",
			"recompress.reset_distance: 3MiB: must be a power of two",
			`spool.cap: "16GB" is not a size`, `spool.when_full: "drop" is not one of block, shed`, `spool.keep: "-1" is not a size`,
			`spool.seal: "maybe" is not one of on, off, true, false`, `spool.fsync: "2" is not one of`, `log.level: "loud" is not one of`, `log.format: "xml" is not one of`,
			`listen.wal_sender_timeout: "10" is not a duration`, `listen.max_connections: "many" is not a whole number`}},
		{"level", enough + "recompress: {codec: model, level: 4}\n", []string{"recompress.level: 4 is not one of [1 3 5 10 16]"}},
		{"unknown codec", enough + "recompress: {codec: lzo}\n", []string{`recompress.codec: unknown codec "lzo": want auto, model, zstd, lz4 or none`}},
		{"upstream", "data: {dir: d}\nupstream: {conninfo: h, create_slot: on, status_interval: -1s, receiver_timeout: 0s, backoff_min: 5s, backoff_max: 1s}\n",
			[]string{"upstream.conninfo: is not a libpq connection string", "upstream.create_slot: needs upstream.slot", "upstream.status_interval: -1s",
				"upstream.receiver_timeout: 0s", "upstream.backoff_max: 1s is below upstream.backoff_min, 5s"}},
		{"slot", "data: {dir: d}\nupstream: {conninfo: host=h, slot: Bad-Name}\nacknowledge: {flush: none}\n",
			[]string{`upstream.slot: replication slot name "Bad-Name" contains`, "acknowledge.flush: none would keep"}},
		{"addresses", enough + "listen: {addresses: [nowhere, '1.2.3.4:5432', 'localhost:1', '[::1]:2', ':5433', 'unix:rel', 'localhost:1', '127.0.0.1:99999']}\nhttp: {address: unix:/x}\n",
			[]string{`listen.addresses[0]: "nowhere" is not an address`, "listen.addresses[1]: 1.2.3.4:5432 can be reached from elsewhere",
				"listen.addresses[4]: :5433 can be reached", "listen.addresses[5]: \"unix:rel\": the path", "listen.addresses[6]: \"localhost:1\" is given twice",
				"listen.addresses[7]: \"127.0.0.1:99999\": the port", "http.address: a unix socket is not possible"}},
		{"no address", enough + "listen: {addresses: []}\n", []string{"listen.addresses: is empty"}},
		{"trust with users", enough + "listen: {auth: {users: [{name: a, verifier: b}], users_file: f}}\n",
			[]string{"listen.auth.users: would be ignored", "listen.auth.users_file: would be ignored"}},
		{"scram without users", enough + "listen: {addresses: [':5433'], auth: {method: scram-sha-256}}\n", []string{"listen.addresses[0]: :5433 can be reached from elsewhere, and WAL would pass in the clear", "listen.auth.users: passwords need"}},
		{"users", enough + "listen: {auth: {method: scram-sha-256, users_file: " + missing + ", users: [{name: a, verifier: '" + verifier +
			"'}, {name: a, verifier: SECRET}, {verifier: 'SCRAM-SHA-256$0:x$y:z'}, {name: c, password: SECRET}, b]}}\n",
			[]string{"listen.auth.users_file: read password file: open " + missing, "listen.auth.users: listen.auth.users_file is given too", `listen.auth.users[1].name: "a" is given twice`, "listen.auth.users[1].verifier: parse SCRAM verifier: ",
				"listen.auth.users[2].name: is missing", "listen.auth.users[2].verifier: parse SCRAM verifier: ",
				"listen.auth.users[3].password: unknown key", "listen.auth.users[3].verifier: is missing", "listen.auth.users[4]: want a section",
				"listen.auth.users[4].name: is missing", "listen.auth.users[4].verifier: is missing"}},
		{"SQL off with users", enough + "listen: {sql_users: [{name: a, conninfo: host=h}]}\n", []string{"listen.sql_users: would be ignored"}},
		{"SQL without users", enough + "listen: {sql: relay}\n", []string{"listen.sql_users: is empty"}},
		{"SQL users", enough + "listen: {sql: relay, sql_users: [{name: a, conninfo: host=h}, {name: a, conninfo: SECRET}, {conninfo: ''}]}\n",
			[]string{`listen.sql_users[1].name: "a" is given twice`, "listen.sql_users[1].conninfo: is not a libpq connection string",
				"listen.sql_users[2].name: is missing", "listen.sql_users[2].conninfo: is missing"}},
		{"SQL mode", enough + "listen: {sql: on, base_backup: off}\n", []string{`listen.sql: "on" is not one of refuse, relay`}},
		{"policies", enough + "acknowledge: {write: any 0, flush: consumer, apply: all}\n",
			[]string{`acknowledge.write: parse acknowledgement rule "any 0": want a number`, `acknowledge.flush: parse acknowledgement rule "consumer": want`, `acknowledge.apply: parse acknowledgement rule "all": want`}},
		{"impossible policies", enough + "acknowledge: {write: none, flush: none, apply: spool}\n",
			[]string{"acknowledge.write: acknowledgement of write: none would keep", "acknowledge.apply: acknowledgement of apply: a node replays nothing"}},
		{"bad users file", enough + "listen: {auth: {method: scram-sha-256, users_file: " + secrets + "}}\n", []string{"listen.auth.users_file: read password file " + secrets + ": line 2: want"}},
		{"good users file", enough + "listen: {auth: {method: scram-sha-256, users_file: " + users + "}}\n", nil},
		{"negative", enough + "listen: {wal_sender_timeout: -1s, max_connections: 0, drain_timeout: 0s, authentication_timeout: 0s}\nspool: {cap: 5MiB}\n",
			[]string{"listen.wal_sender_timeout: -1s", "listen.max_connections: 0", "listen.drain_timeout: 0s", "listen.authentication_timeout: 0s", "spool.cap: 5MiB: must be at least four times recompress.reset_distance, 16MiB"}},
		{"good", enough + "spool: {cap: 0}\nlisten: {wal_sender_timeout: 0s}\nacknowledge: {write: min, flush: any 2, apply: consumer s1}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.yaml), nil)
			checkProblems(t, err, c.want)
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("a secret is printed: %s", err)
			}
		})
	}
}

// checkProblems wants exactly these problems, in any order.
func checkProblems(t *testing.T, err error, want []string) {
	t.Helper()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("error %T: %v", err, err)
	}
	var got []string
	if e != nil {
		for _, p := range e.Problems {
			got = append(got, p.Key+": "+p.What)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d", len(got), len(want))
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, w)
		}
		if !found {
			t.Errorf("no problem %q", w)
		}
	}
	if t.Failed() {
		t.Logf("problems:\n%s", strings.Join(got, "\n"))
	}
}

func TestErrorText(t *testing.T) {
	_, err := Parse("f.yaml", []byte("data: {dir: d}\nspool:\n  cap: much\n"), nil)
	want := `configuration f.yaml: 2 problems
  upstream.conninfo: is missing: want a libpq connection string or URI, as in host=primary.example user=replicator
  line 3: spool.cap: "much" is not a size: want a whole number with a unit (B, KiB, MiB, GiB, TiB), as in 4MiB`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = Parse("", []byte("data: {dir: d}\n"), func(c *Config) { c.Upstream.Conninfo = "host=h"; c.Log.Level = "info"; c.HTTP.Address = "x" })
	if want := `configuration: http.address: "x" is not an address: want host:port or unix:/path`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// What is read is what was written, and the rest is as in Default. Checking does not change anything.
func TestValues(t *testing.T) {
	c, err := Parse("", []byte(`
upstream: {conninfo: "host=a,b user=u", slot: s_1, create_slot: true, link: off, status_interval: 1500ms}
listen: {addresses: ["0.0.0.0:5433", "unix:/run/x"], tls: {plaintext: allow}, auth: {method: scram-sha-256, users: [{name: a, verifier: "`+verifier+`"}], replication: "a, b"}, link: off}
data: {dir: /d}
recompress: {codec: none, level: 16, reset_distance: 64MiB, hold: 2ms, backlog: 1GiB, compress: physical, max_record_bytes: 64KiB, except: ["1663/*/24576", "*/5/*"], record_threshold: 1MiB}
spool: {cap: 1 TiB, when_full: shed, keep: 0, seal: off, fsync: off}
acknowledge: {write: min, flush: any 2, apply: consumer s 1}
http: {address: off}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Upstream.Conninfo, want.Upstream.Slot, want.Upstream.CreateSlot = "host=a,b user=u", "s_1", true
	want.Upstream.Link, want.Upstream.StatusInterval = LinkOff, 1500*time.Millisecond
	want.Listen.Addresses = []Address{"0.0.0.0:5433", "unix:/run/x"}
	want.Listen.TLS.Plaintext = PlaintextAllow
	want.Listen.Auth.Method, want.Listen.Auth.Users, want.Listen.Auth.Replication = AuthSCRAM, []User{{"a", verifier}}, Names{"a", "b"}
	want.Listen.Link = false
	want.Data.Dir = "/d"
	want.Recompress = Recompress{Codec: "none", Level: 16, ResetDistance: 64 * MiB, Hold: 2 * time.Millisecond, Backlog: GiB, Compress: "physical", MaxRecordBytes: 64 * KiB, RecordThreshold: MiB,
		Except: []Relations{{recompress.Relations{Tablespace: 1663, Number: 24576}}, {recompress.Relations{Database: 5}}}}
	want.Spool = Spool{Cap: TiB, WhenFull: WhenFullShed}
	want.Acknowledge = Acknowledge{Write: Rule{slots.Rule{Kind: slots.RuleMin}}, Flush: Rule{slots.Rule{Kind: slots.RuleAny, Count: 2}}, Apply: Rule{slots.Rule{Kind: slots.RuleConsumer, Name: "s 1"}}}
	want.HTTP.Address = Off
	for range 2 {
		if !reflect.DeepEqual(c, want) {
			t.Fatalf("got  %#v\nwant %#v", c, want)
		}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "1B": 1, "4MiB": 4 << 20, "16 GiB": 16 << 30, "2047KiB": 2047 << 10, "0MiB": 0} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "4MB", "4mib", "-1MiB", "1.5GiB", "MiB", "9223372036854775807TiB", "99999999999999999999B", "1  B", " 1B"} {
		if got, err := ParseBytes(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
	for _, text := range []string{"0", "1B", "4MiB", "2047KiB", "3TiB"} {
		if b, err := ParseBytes(text); err != nil || b.String() != text {
			t.Errorf("%q prints as %q, %v", text, b, err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	for conninfo, want := range map[Conninfo]string{
		"host=h port=5 user=u password=hunter2":                      "u@h:5",
		"postgres://u:hunter2@h1:1,h2:2/db?sslmode=prefer":           "u@h1:1,h2:2",
		"host=/run user=u port=7 password='hunter2'":                 "u@/run:7",
		"postgres://u:hunter2@h:port/db":                             "xxxxx",
		"host=h passwrd hunter2":                                     "xxxxx",
		"host=h user=u sslpassword=hunter2 port=5 sslmode=disable  ": "u@h:5",
		"": "",
	} {
		if got := conninfo.String(); got != want {
			t.Errorf("prints as %q, want %q", got, want)
		}
		c := Default()
		c.Upstream.Conninfo, c.Listen.Auth.Users = conninfo, []User{{"a", "hunter2"}}
		text := fmt.Sprintf("%v %+v %#v %s %q", *c, *c, *c, conninfo, conninfo)
		if err := c.Validate(); err != nil {
			text += err.Error()
		}
		if m, err := conninfo.MarshalText(); err != nil || string(m) != want {
			t.Errorf("marshals as %q, %v", m, err)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("the password of %q is printed: %s", want, text)
		}
	}
	missing := Conninfo("host=h user=u sslmode=verify-full sslrootcert=/nowhere/ca.pem password=hunter2")
	if err := missing.check(); err == nil || !strings.Contains(err.Error(), "/nowhere/ca.pem") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("missing file: %v", err)
	}
}

func TestLoadFiles(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big, nil); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("large file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(enough))
	f.Add([]byte("listen: {addresses: [a, {b: c}], auth: {users: [{name: [x]}]}}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse("f", content, nil)
		var e *Error
		if err == nil && c.Validate() != nil || err != nil && (!errors.As(err, &e) || len(e.Problems) == 0) {
			t.Fatalf("%v", err)
		}
	})
}
