package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
)

// TestConformanceHosts holds the statements about clients with several hosts: a primary and a standby, a node of each.
func TestConformanceHosts(t *testing.T) {
	t.Parallel()
	hosts := func(ctx context.Context, t *testing.T, major int) {
		primary := startPrimary(ctx, t, pgcluster.Options{Major: major, NoFsync: true, Conf: fastRetry})
		standby := follower(ctx, t, primary, primary.Conninfo())
		ofPrimary := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
		ofStandby := startNode(ctx, t, nodeproc.Options{Config: fastNode(standby.Conninfo(), "")})
		t.Run("14_target_session_attrs", func(t *testing.T) { targetSessionAttrs(ctx, t, primary, standby, ofPrimary, ofStandby) })
		if major == 15 {
			t.Run("14_oldest_library", func(t *testing.T) {
				oldestLibrary(ctx, t, [2]int{standby.Port, primary.Port}, [2]int{ofStandby.Options.Port, ofPrimary.Options.Port})
			})
		}
		t.Run("17_upstream_unknown", func(t *testing.T) { upstreamUnknown(ctx, t, ofPrimary) })
		t.Run("13_42_live_promotion", func(t *testing.T) { hotStandbyFlips(ctx, t, primary, standby, ofStandby) })
	}
	for _, major := range where(13, 15, 18) { // 14 to 17 report the same settings
		t.Run(fmt.Sprint(major), func(t *testing.T) {
			t.Parallel()
			hosts(setting(t, patience), t, major)
		})
	}
}

// targetSessionAttrs asks libpq which of two hosts it chooses, in both orders, for servers and for nodes.
func targetSessionAttrs(ctx context.Context, t *testing.T, primary, standby *pgcluster.Cluster, ofPrimary, ofStandby *nodeproc.Node) {
	others := []int{14, 16, 17, 18}
	if primary.Major != pgcluster.Newest {
		others = nil // how a library chooses does not depend on the server from 14 on
	}
	for _, want := range []string{"any", "read-write", "read-only", "primary", "standby", "prefer-standby"} {
		for _, swap := range []bool{false, true} {
			chosen := func(libpq, first, second int) string {
				ports := []int{first, second}
				if swap {
					ports = []int{second, first}
				}
				out := psqlWith(ctx, t, libpq, fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s target_session_attrs=%s replication=true", ports[0], ports[1], pgcluster.User, want), `\echo :PORT`)
				return strings.NewReplacer(fmt.Sprint(first), "primary", fmt.Sprint(second), "standby").Replace(out)
			}
			direct, through := chosen(0, primary.Port, standby.Port), chosen(0, ofPrimary.Options.Port, ofStandby.Options.Port)
			for _, libpq := range append([]int{0}, others...) {
				if libpq != 0 && swap == slices.Contains([]string{"read-write", "primary"}, want) { // what it chooses of servers is as old as the parameter
					through = chosen(libpq, ofPrimary.Options.Port, ofStandby.Options.Port)
				}
				if direct != through {
					t.Errorf("%s, swapped %v: of servers libpq chooses %s, of nodes that of %d %s", want, swap, direct, libpq, through)
				}
			}
		}
	}
}

// psql runs a command and returns what it prints, of errors too.
func psql(ctx context.Context, t *testing.T, conninfo, command string) string {
	t.Helper()
	return psqlWith(ctx, t, 0, conninfo, command)
}

// psqlWith is psql with the libpq of another version than its own, unless libpq is 0. That of 13 lacks what psql of 15 calls.
func psqlWith(ctx context.Context, t *testing.T, libpq int, conninfo, command string) string {
	t.Helper()
	path, _, err := pgcluster.FindTool("psql")
	must(t, err)
	cmd := exec.CommandContext(ctx, path, "-XAtqw", "-d", conninfo, "-c", command)
	if libpq != 0 {
		useLibpq(t, cmd, libpq)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return strings.TrimSpace(fmt.Sprintf("%v %s", err, out))
	}
	return strings.TrimSpace(string(out))
}

// useLibpq has a tool load the libpq of another version.
func useLibpq(t *testing.T, cmd *exec.Cmd, libpq int) {
	t.Helper()
	install, err := pgcluster.Find(libpq)
	must(t, err)
	if dir := install.Libraries(); dir != "" {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	}
}

// oldestLibrary has the libpq of 13 choose between a standby and a primary, servers and nodes: the one that pg_receivewal makes a slot on.
func oldestLibrary(ctx context.Context, t *testing.T, servers, nodes [2]int) {
	tool, _, err := pgcluster.FindTool("pg_receivewal")
	must(t, err)
	for want, chosen := range map[string]int{"any": 0, "read-write": 1} {
		for _, ports := range [][2]int{servers, nodes} {
			receive := func(option string) {
				cmd := exec.CommandContext(ctx, tool, option, "--slot=oldest", "--no-loop", "--no-password", "--dbname",
					fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s target_session_attrs=%s", ports[0], ports[1], pgcluster.User, want))
				useLibpq(t, cmd, pgcluster.Oldest)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("pg_receivewal %s, %s: %v\n%s", option, want, err, out)
				}
			}
			receive("--create-slot")
			for i, port := range ports {
				read := psql(ctx, t, fmt.Sprintf("host=127.0.0.1 port=%d user=%s replication=true", port, pgcluster.User), "READ_REPLICATION_SLOT oldest")
				if found := strings.HasPrefix(read, "physical"); found != (i == chosen) {
					t.Errorf("%s of ports %v: the slot on %d is %q", want, ports, port, read)
				}
			}
			receive("--drop-slot")
		}
	}
}

// upstreamUnknown: who asks a node that never saw its upstream is sent to the next host at once.
func upstreamUnknown(ctx context.Context, t *testing.T, other *nodeproc.Node) {
	port, err := pgcluster.FreePort()
	must(t, err)
	node, err := nodeproc.New(nodeproc.Options{Binary: binary(t), Dir: t.TempDir(), Upstream: fmt.Sprintf("host=127.0.0.1 port=%d user=u", port)})
	must(t, err)
	t.Cleanup(node.Kill)
	must(t, node.Start())
	var c *wire.Conn
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		c, err = wire.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", node.Options.Port))
		return err == nil, nil
	}))
	defer c.Close()
	began := time.Now()
	must(t, as(c, "u"))
	if got := strings.Join(c.Log, ", "); got != "E FATAL 57P03, closed" || time.Since(began) > 5*time.Second {
		t.Errorf("%s after %s", got, time.Since(began))
	}
	out := psql(ctx, t, fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=u replication=true", node.Options.Port, other.Options.Port), `\echo :PORT`)
	if out != fmt.Sprint(other.Options.Port) {
		t.Errorf("libpq chooses %q, want the node on port %d", out, other.Options.Port)
	}
}

// hotStandbyFlips promotes the upstream while clients stream and while they are idle, of the server and of its node.
func hotStandbyFlips(ctx context.Context, t *testing.T, primary, standby *pgcluster.Cluster, node *nodeproc.Node) {
	lsn := write(ctx, t, primary, 10)
	must(t, standby.WaitReplayed(ctx, lsn))
	open := func(port int) (idle, streaming *wire.Conn) {
		var all [2]*wire.Conn
		for i := range all {
			c, err := wire.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			must(t, as(c, pgcluster.User, "wal_sender_timeout", "60000")) // it says nothing while servers stop
			all[i] = c
		}
		return all[0], all[1]
	}
	idle, streaming := open(standby.Port)
	idleThrough, streamingThrough := open(node.Options.Port)
	all := []*wire.Conn{idle, streaming, idleThrough, streamingThrough}
	for _, c := range all {
		if want := map[bool]string{true: "on"}[standby.Major >= 14]; c.Status["in_hot_standby"] != want {
			t.Errorf("in_hot_standby is %q, want %q", c.Status["in_hot_standby"], want)
		}
		c.Log = nil
	}
	var streams []*brought
	for _, c := range []*wire.Conn{streaming, streamingThrough} {
		must(t, c.Command("IDENTIFY_SYSTEM")) // without it a standby of 13 or 14 does not know its timeline
		c.Log, c.Values = nil, true
		r, err := startStream(c, lsn.Floor(standby.Options.SegmentBytes()), 1)
		must(t, err)
		must(t, r.take(c, func(m wire.Message) bool { return r.end() >= lsn || m.Type == 'E' }))
		streams = append(streams, r)
	}
	must(t, primary.Stop(ctx, pgcluster.Fast))
	must(t, standby.Promote(ctx))
	write(ctx, t, standby, 10) // a server tells its idle clients of a promotion when there is WAL
	var ended time.Time        // of the server's stream
	for i, c := range []*wire.Conn{streaming, streamingThrough} {
		must(t, streams[i].take(c, ofType("c")))
		if i == 0 {
			ended = time.Now()
		} else if took := time.Since(ended); took > 5*time.Second { // milliseconds on a machine that is not busy
			t.Errorf("the node's stream ended %s after the server's", took)
		}
		must(t, streams[i].stop(c))
	}
	for _, c := range []*wire.Conn{idle, idleThrough} {
		must(t, c.Command("SHOW transaction_read_only"))
	}
	if diff := wire.Diff(streaming.Log, streamingThrough.Log); diff != "" {
		t.Errorf("streaming: %s", diff)
	}
	if diff := wire.Diff(idle.Log, idleThrough.Log); diff != "" {
		t.Errorf("idle: %s", diff)
	}
}
