package walsender_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// primary is a running PostgreSQL 15 with small segments; its WAL before begin is not looked at.
func primary(t *testing.T, ctx context.Context) *pgcluster.Cluster {
	t.Helper()
	return primaryOf(t, ctx, 15)
}

func primaryOf(t *testing.T, ctx context.Context, major int) *pgcluster.Cluster {
	t.Helper()
	c, err := pgcluster.Create(ctx, pgcluster.Options{Major: major, SegmentMiB: 1, NoFsync: true, Templates: templates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// mirror returns a node that holds a primary's WAL of timeline 1 from the segment of from on, and knows its settings.
func mirror(t *testing.T, ctx context.Context, c *pgcluster.Cluster, from protocol.LSN) *node {
	t.Helper()
	n := newNode("", from.Floor(1<<20), nil)
	id, err := c.SystemIdentifier(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n.identity.SystemID = protocol.SystemID(id)
	for _, name := range protocol.ShownSettings {
		if name == "in_hot_standby" && c.Major == 13 { // it has none
			continue
		}
		if n.identity.Settings[name], err = c.Value(ctx, "SHOW "+name); err != nil {
			t.Fatal(err)
		}
	}
	n.identity.ServerVersion = n.identity.Settings["server_version"]
	pull(t, ctx, n, c)
	return n
}

// pull gives the node what the primary has flushed by now, and returns the end of it.
func pull(t *testing.T, ctx context.Context, n *node, c *pgcluster.Cluster) protocol.LSN {
	t.Helper()
	end, err := c.FlushLSN(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tli, have := n.Position()
	more, err := pgcluster.ReadWAL(c.WAL(), tli, have, end)
	if err != nil {
		t.Fatal(err)
	}
	n.grow(more)
	return end
}

func load(t *testing.T, ctx context.Context, c *pgcluster.Cluster, sql string) {
	t.Helper()
	if err := c.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestSameAnswersAsPostgres sends the same commands to a PostgreSQL server of every version and to a node of its WAL, and
// compares every message.
func TestSameAnswersAsPostgres(t *testing.T) {
	majors := pgcluster.Majors()
	if testing.Short() { // the race detector's run
		majors = majors[len(majors)-1:]
	}
	for _, major := range majors {
		t.Run(strconv.Itoa(major), func(t *testing.T) { sameAnswers(t, major) })
	}
}

// long is longer than a name can be.
var long = strings.Repeat("l", 70)

// sameCommands are sent in this order, on one connection.
var sameCommands = []struct {
	name     string
	commands []string
}{
	{"20_keywords_and_SQL", []string{
		"IDENTIFY_SYSTEM", "IDENTIFY_SYSTEM;", "\n IDENTIFY_SYSTEM \t;\n", "identify_system", "show wal_level", "", ";", "SELECT 1", "-- x\nIDENTIFY_SYSTEM",
		"IDENTIFY_SYSTEM -- x", "IDENTIFY_SYSTEM; IDENTIFY_SYSTEM", "IDENTIFY_SYSTEM x", "SHOW",
	}},
	{"22_show", []string{
		"SHOW wal_segment_size", "SHOW wal_block_size", "SHOW block_size", "SHOW data_directory_mode", "SHOW server_version", "SHOW transaction_read_only",
		"SHOW in_hot_standby", "SHOW full_page_writes", "SHOW wal_sender_timeout", "SHOW DateStyle", `SHOW "TimeZone"`, "SHOW application_name",
		"SHOW nonsense", "SHOW some.thing", "SHOW wal_level",
	}},
	{"23_no_history", []string{"TIMELINE_HISTORY 2", "TIMELINE_HISTORY 0", "TIMELINE_HISTORY x"}},
	{"24_25_26_slots", []string{
		"READ_REPLICATION_SLOT none", "CREATE_REPLICATION_SLOT a PHYSICAL", "READ_REPLICATION_SLOT a", "CREATE_REPLICATION_SLOT a PHYSICAL",
		"CREATE_REPLICATION_SLOT A PHYSICAL", `CREATE_REPLICATION_SLOT "A" PHYSICAL`, `CREATE_REPLICATION_SLOT "" PHYSICAL`, `CREATE_REPLICATION_SLOT "a-b" PHYSICAL`,
		"CREATE_REPLICATION_SLOT b PHYSICAL (RESERVE_WAL)", "CREATE_REPLICATION_SLOT c PHYSICAL ( reserve_wal 'off')", "CREATE_REPLICATION_SLOT d PHYSICAL RESERVE_WAL",
		"CREATE_REPLICATION_SLOT f PHYSICAL ( RESERVE_WAL)", "CREATE_REPLICATION_SLOT g PHYSICAL (reserve_wal 'on')",
		"CREATE_REPLICATION_SLOT e PHYSICAL (nonsense)", "CREATE_REPLICATION_SLOT e PHYSICAL (reserve_wal maybe)", "CREATE_REPLICATION_SLOT e PHYSICAL (reserve_wal, reserve_wal)",
		"CREATE_REPLICATION_SLOT e PHYSICAL (snapshot 'use')", "CREATE_REPLICATION_SLOT e PHYSICAL EXPORT_SNAPSHOT", "CREATE_REPLICATION_SLOT e PHYSICAL ()",
		"CREATE_REPLICATION_SLOT e", "CREATE_REPLICATION_SLOT 'e' PHYSICAL", "CREATE_REPLICATION_SLOT WAIT PHYSICAL",
		"CREATE_REPLICATION_SLOT " + long + " PHYSICAL", "CREATE_REPLICATION_SLOT " + long + "x PHYSICAL", "DROP_REPLICATION_SLOT " + long,
	}},
	{"27_errors_drop_temporary_slots", []string{
		"CREATE_REPLICATION_SLOT tmp TEMPORARY PHYSICAL", "READ_REPLICATION_SLOT tmp", "nonsense", "READ_REPLICATION_SLOT tmp",
	}},
	{"26_28_drop", []string{
		"DROP_REPLICATION_SLOT a", "DROP_REPLICATION_SLOT a", "DROP_REPLICATION_SLOT b WAIT", "DROP_REPLICATION_SLOT none WAIT", "DROP_REPLICATION_SLOT c x",
	}},
	{"29_alter", []string{"ALTER_REPLICATION_SLOT d (failover)", "ALTER_REPLICATION_SLOT none (failover)", "UPLOAD_MANIFEST x"}},
	{"38_39_bad_starts", []string{
		"START_REPLICATION", "START_REPLICATION 0/0 TIMELINE 0", "START_REPLICATION SLOT none 0/0", "START_REPLICATION 0/0 TIMELINE 7",
		"START_REPLICATION FFFFFFF/0", "START_REPLICATION FFFFFFF/0 TIMELINE 1", "START_REPLICATION SLOT d PHYSICAL FFFFFFF/0 TIMELINE 1",
		"START_REPLICATION 0/ TIMELINE 1", `START_REPLICATION SLOT "c PHYSICAL 0/0`,
	}},
}

// pair is a session with a PostgreSQL server and one with a node that must say the same.
type pair struct {
	t            *testing.T
	whole        *testing.T // ends the connections
	theirPort    int
	ourPort      int
	theirs, ours *client
}

// connect begins two new sessions, which must begin alike.
func (p *pair) connect(parameters ...string) {
	p.t.Helper()
	p.theirs, p.ours = p.dial(p.theirPort), p.dial(p.ourPort)
	p.each(func(c *client) { c.startup(3<<16, parameters...) })
	p.compare(fmt.Sprintf("startup with %q", parameters), 'Z')
}

func (p *pair) dial(port int) *client {
	conn := mustDial(p.whole, port)
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	c := newClient(p.t, conn)
	c.verbose = true
	return c
}

func (p *pair) each(f func(*client)) { f(p.theirs); f(p.ours) }

func (p *pair) compare(what string, kinds ...byte) {
	p.t.Helper()
	if want, got := p.theirs.until(kinds...), p.ours.until(kinds...); got != want {
		p.t.Errorf("%s:\n    ours %s\nPostgres %s", what, got, want)
	}
}

// query sends a command to both and compares the answers up to a kind of message.
func (p *pair) query(sql string, kinds ...byte) {
	p.t.Helper()
	p.each(func(c *client) { c.query(sql) })
	p.compare(sql, kinds...)
}

// message is query for any message.
func (p *pair) message(kind byte, body string, kinds ...byte) {
	p.t.Helper()
	p.each(func(c *client) { c.message(kind, []byte(body)) })
	p.compare(fmt.Sprintf("%c %q", kind, body), kinds...)
}

func sameAnswers(t *testing.T, major int) {
	ctx := deadline(t)
	c := primaryOf(t, ctx, major)
	load(t, ctx, c, "CREATE TABLE t AS SELECT generate_series(1, 20000) i; SELECT pg_switch_wal(); CHECKPOINT")
	start, err := c.FlushLSN(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := mirror(t, ctx, c, start)
	n.maxSlots = 20
	p := &pair{t: t, whole: t, theirPort: c.Port, ourPort: serveTCP(t, n, walsender.Options{}).port()}
	_, end := n.Position()
	p.connect("user", "postgres", "replication", "true", "application_name", "ünter", "options", "-c wal_sender_timeout=90500 -c datestyle=iso,dmy")
	for name, want := range p.theirs.status {
		if got := p.ours.status[name]; got != want && name != "is_superuser" { // there are no superusers here
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(p.ours.status) != len(p.theirs.status) {
		t.Errorf("parameters %v, want %v", p.ours.status, p.theirs.status)
	}
	for _, group := range sameCommands {
		p.run(t, group.name, func() {
			for _, sql := range group.commands {
				p.query(sql, 'Z')
			}
		})
	}
	p.run(t, "26_all_slots_used", func() {
		for i := range n.maxSlots + 1 {
			p.query(fmt.Sprintf("CREATE_REPLICATION_SLOT more%d PHYSICAL", i), 'Z')
		}
	})
	p.run(t, "27_CopyDone_keeps_temporary_slots", func() { p.temporary(end) })
	p.run(t, "21_47_other_messages", func() { p.copies(end) })
	p.run(t, "03_05_06_startup", func() { p.refusals(major) })
}

// run is t.Run; what differs is told of the part.
func (p *pair) run(t *testing.T, name string, f func()) {
	t.Run(name, func(t *testing.T) {
		p.t = t
		for _, c := range []*client{p.theirs, p.ours} {
			c.t = t
		}
		f()
	})
}

// temporary makes a slot on a new connection, for which there must be room, and ends a stream.
func (p *pair) temporary(end protocol.LSN) {
	p.connect("user", "postgres", "replication", "true")
	for _, sql := range []string{"DROP_REPLICATION_SLOT more0", "CREATE_REPLICATION_SLOT tmp TEMPORARY PHYSICAL RESERVE_WAL"} {
		p.query(sql, 'Z')
	}
	p.query(fmt.Sprintf("START_REPLICATION %s TIMELINE 1", end), 'W')
	p.message('c', "", 'Z')
	p.query("DROP_REPLICATION_SLOT tmp", 'Z') // which is there
}

// copies compares streams that begin at the end of the WAL, and what may go wrong in them.
func (p *pair) copies(end protocol.LSN) {
	start := fmt.Sprintf("START_REPLICATION %s", end)
	p.query(fmt.Sprintf("START_REPLICATION SLOT d %s TIMELINE 1", end), 'W')
	p.message('d', string(status(end, end, true)), 'd')
	p.message('c', "", 'Z')
	p.query("READ_REPLICATION_SLOT d", 'Z')
	p.query(start, 'W')
	p.message('d', "r12", 'Z')
	for _, kind := range []byte("PBECD") {
		p.each(func(c *client) { c.message(kind, []byte{0, 0, 0, 0}); c.message('H', nil); c.message('S', nil) })
		p.compare("extended message "+string(kind), 'Z')
	}
	p.message('F', "\x00\x00\x00\x00", 'Z')
	p.query(start, 'W')
	p.message('f', "x\x00", 'Z')
	p.connect("user", "postgres", "replication", "true")
	p.query(start, 'W')
	p.message('d', "?", 'Z')
	p.connect("user", "postgres", "replication", "true")
	p.query(start, 'W')
	p.message('Q', "IDENTIFY_SYSTEM\x00", 'Z')
	p.connect("user", "postgres", "replication", "true")
	p.message('@', "", 'Z')
}

// refusals compares startup packets that are refused, or negotiated.
func (p *pair) refusals(major int) {
	for _, parameters := range [][]string{
		{"user", "postgres", "replication", "maybe"}, {"replication", "true"}, {"user", "postgres", "replication", "1", "nonsense", "1"},
		{"user", "postgres", "replication", "1", "wal_sender_timeout", "soon"}, {"user", "postgres", "replication", "1", "_pq_.walproxy_link", "1"},
		{"user", "postgres", "replication", "1", "server_version", "1"}, {"user", "postgres", "replication", "1", "options", "-c x"},
		{"user", "postgres", "replication", "1", "options", "-c nonsense=1"},
	} {
		p.connect(parameters...)
	}
	for _, packet := range [][]byte{packet(4<<16, nil), packet(2<<16, nil), packet(1<<16, nil), packet(3<<16, []byte("user\x00x\x00")), packet(3<<16, nil)} {
		if major == 13 && packet[5] == 2 {
			continue // it still speaks that
		}
		want, got := allBytes(p.t, p.theirPort, packet), allBytes(p.t, p.ourPort, packet)
		if theirs, ours := withoutPlace(want), withoutPlace(got); theirs != ours {
			p.t.Errorf("packet %q:\n    ours %q\nPostgres %q", packet, ours, theirs)
		}
	}
}

// allBytes sends a packet and returns what comes back up to the end of the connection.
func allBytes(t *testing.T, port int, packet []byte) string {
	t.Helper()
	conn := mustDial(t, port)
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// withoutPlace drops from an ErrorResponse its length and the place in the source, which only PostgreSQL has.
func withoutPlace(answer string) string {
	if len(answer) > 5 && answer[1] == 0 {
		answer = answer[:1] + answer[5:]
	}
	before, _, _ := strings.Cut(answer, "\x00F")
	return strings.TrimRight(before, "\x00")
}

func mustDial(t *testing.T, port int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestPsql(t *testing.T) {
	psql, _, err := pgcluster.FindTool("psql")
	if err != nil {
		t.Fatal(err)
	}
	secret := "pässwörd \u00a0x" // SASLprep makes a blank of the no-break space
	users, err := walsender.NewUsers(map[string]string{"postgres": secret, "verified": scramVerifier(t, "other")})
	if err != nil {
		t.Fatal(err)
	}
	n := newNode("15.18", begin, nil)
	h := serveTCP(t, n, walsender.Options{Access: passwords(users)})
	run := func(user, password, sql string) string {
		conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=%s replication=true require_auth=scram-sha-256", h.port(), user)
		conninfo = strings.TrimSuffix(conninfo, " require_auth=scram-sha-256") // since libpq 16
		cmd := exec.Command(psql, "-w", "-XAt", "-d", conninfo, "-c", sql)
		cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "error: " + string(out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := run("postgres", secret, "IDENTIFY_SYSTEM"); got != "7302451234567890123|1|0/1000000|" {
		t.Error(got)
	}
	if got := run("verified", "other", "SHOW wal_segment_size"); got != "1MB" {
		t.Error(got)
	}
	if got := run("postgres", secret, "BASE_BACKUP"); !strings.Contains(got, "BASE_BACKUP is not supported by this node") {
		t.Error(got)
	}
	for _, test := range []struct{ user, password, want string }{
		{"postgres", "wrong", `password authentication failed for user "postgres"`},
		{"nobody", "wrong", `password authentication failed for user "nobody"`},
		{"postgres", "", "no password supplied"},
	} {
		if got := run(test.user, test.password, "IDENTIFY_SYSTEM"); !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// scramVerifier has PostgreSQL make a verifier of a password.
func scramVerifier(t *testing.T, password string) string {
	t.Helper()
	ctx := deadline(t)
	c := primary(t, ctx)
	load(t, ctx, c, "CREATE ROLE x PASSWORD '"+password+"'")
	verifier, err := c.Value(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = 'x'")
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

// TestPgReceivewal streams a primary's WAL by way of a node and compares the files, with and without a slot.
func TestPgReceivewal(t *testing.T) {
	ctx := deadline(t)
	c := primary(t, ctx)
	load(t, ctx, c, "CREATE TABLE t(i int); SELECT pg_switch_wal()")
	from, err := c.FlushLSN(ctx)
	if err != nil {
		t.Fatal(err)
	}
	from = from.Floor(1 << 20)
	load(t, ctx, c, "INSERT INTO t SELECT generate_series(1, 50000)")
	n := mirror(t, ctx, c, from)
	h := serveTCP(t, n, walsender.Options{})
	for _, slot := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "wal")
		var args []string
		if slot {
			if err := n.Create("receivewal", 0, walsender.SlotOptions{ReserveWAL: true}); err != nil {
				t.Fatal(err)
			}
			args = []string{"--slot=receivewal", "--synchronous"}
		} else {
			seed(t, c, dir, from)
		}
		r, err := pgcluster.PgReceivewal(dir, h.conninfo(), args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Kill)
		load(t, ctx, c, "INSERT INTO t SELECT generate_series(1, 50000); SELECT pg_switch_wal(); INSERT INTO t VALUES (0)")
		end := pull(t, ctx, n, c)
		to := end.Floor(1 << 20)
		received := pgcluster.Source{Dir: dir, SegmentBytes: 1 << 20}
		if err := pgcluster.Until(ctx, func() (bool, error) {
			if !r.Running() {
				return false, fmt.Errorf("it ended: %s", r.Log(4096))
			}
			return pgcluster.CompareWAL(c.WAL(), received, 1, from, end) == nil, nil
		}); err != nil {
			t.Fatalf("slot %v: %v: %v", slot, err, pgcluster.CompareWAL(c.WAL(), received, 1, from, to))
		}
		if slot {
			eventually(t, n, "slot", func() bool { return n.slots["receivewal"].restart == end })
		}
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// seed gives pg_receivewal a complete segment to go on from, which ends at from.
func seed(t *testing.T, c *pgcluster.Cluster, dir string, from protocol.LSN) {
	t.Helper()
	name := protocol.SegmentName(1, from-1, 1<<20)
	content, err := os.ReadFile(filepath.Join(c.WALDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}
