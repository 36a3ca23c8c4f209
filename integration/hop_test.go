package integration

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"walproxy/integration/faultproxy"
	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestFaultsOnEveryHopSoak cuts, stalls and half-opens the connections of every hop in random order, under load. Afterwards
// everybody has the same WAL.
func TestFaultsOnEveryHopSoak(t *testing.T) {
	t.Parallel()
	t.Run("51_faults", faultsOnEveryHop)
}

func faultsOnEveryHop(t *testing.T) {
	t.Parallel()
	n := rounds(9, 300)
	ctx := setting(t, patience+time.Duration(n)*20*time.Second)
	choice := random(t)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: append([]string{"wal_keep_size = 2GB"}, fastRetry...)})
	standby := cloneOf(ctx, t, primary)
	first, conninfo := through(t, primary.Port)
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(conninfo, "")})
	second, conninfo := through(t, a.Options.Port)
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(conninfo, "")})
	third, conninfo := through(t, b.Options.Port)
	must(t, standby.MakeStandby(conninfo, ""))
	must(t, standby.Start(ctx))
	lsn := write(ctx, t, primary, 1)
	from := lsn.Floor(primary.Options.SegmentBytes())
	must(t, standby.WaitReplayed(ctx, lsn))
	hops := []*faultproxy.Proxy{first, second, third}
	for range n {
		hop := hops[choice.IntN(len(hops))]
		switch choice.IntN(5) {
		case 0:
			hop.Cut()
		case 1:
			hop.HalfOpen()
		case 2:
			hop.HalfOpenDown()
		case 3:
			hop.StallAll(true)
		case 4:
			hop.Stall(faultproxy.Down, true)
		}
		lsn = write(ctx, t, primary, 1+choice.IntN(20000))
		hop.StallAll(false)
		must(t, standby.WaitReplayed(ctx, lsn))
	}
	sameRows(ctx, t, primary, standby)
	sameWAL(t, 1, from, lsn, primary.WAL(), standby.WAL())
}

// TestStalledLinkDoesNotEndTheUpstream stalls the link for longer than the primary's wal_sender_timeout: node A goes on
// receiving, and node B catches up from A's spool.
func TestStalledLinkDoesNotEndTheUpstream(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: []string{"wal_sender_timeout = 2s"}})
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	hop, conninfo := through(t, a.Options.Port)
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(conninfo, "")})
	from := write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	pid, err := primary.Value(ctx, "SELECT pid FROM pg_stat_replication")
	must(t, err)
	hop.StallAll(true)
	started := time.Now()
	var lsn = write(ctx, t, primary, 1000)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		lsn = write(ctx, t, primary, 1000)
		return time.Since(started) > 5*time.Second, nil
	}))
	hop.StallAll(false)
	receiver := receive(t, b.Conninfo())
	source := pgcluster.Source{Dir: receiver.Dir, SegmentBytes: primary.Options.SegmentBytes()}
	must(t, pgcluster.AwaitWAL(ctx, primary.WAL(), source, 1, max(from, lsn.Floor(source.SegmentBytes)), lsn))
	after, err := primary.Value(ctx, "SELECT pid FROM pg_stat_replication")
	must(t, err)
	if after != pid {
		t.Fatalf("the primary's walsender changed from %s to %s: the stalled link was felt upstream", pid, after)
	}
}

// TestJunk sends garbage of many kinds to a node. Each connection is closed, and the node goes on serving everybody else.
func TestJunk(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	r := startRelay(ctx, t, pgcluster.Options{Major: 15})
	choice := random(t)
	noise := make([]byte, 64<<10)
	for i := range noise {
		noise[i] = byte(choice.Uint32())
	}
	startup := func(parameters string) string {
		body := "\x00\x03\x00\x00" + parameters + "\x00"
		return fmt.Sprintf("\x00\x00%c%c", (len(body)+4)>>8, (len(body)+4)&255) + body
	}
	link := startup("user\x00x\x00replication\x00true\x00_pq_.walproxy_link\x001\x00")
	query := func(text string) string {
		n := len(text) + 5
		return fmt.Sprintf("Q\x00\x00%c%c%s\x00", n>>8, n&255, text)
	}
	start := query("START_REPLICATION PHYSICAL 0/1000000 TIMELINE 1")
	for name, junk := range map[string]string{
		"noise":               string(noise),
		"nothing":             "",
		"huge startup":        "\x7f\xff\xff\xff" + string(noise),
		"tiny startup":        "\x00\x00\x00\x04",
		"no terminator":       "\x00\x00\x00\x0d\x00\x03\x00\x00user\x00",
		"half a startup":      "\x00\x00\x00\x50\x00\x03\x00\x00user",
		"version 9":           "\x00\x00\x00\x08\x00\x09\x00\x00",
		"HTTP":                "GET /metrics HTTP/1.1\r\n\r\n",
		"TLS hello":           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + string(noise[:508]),
		"huge message":        startup("user\x00x\x00replication\x00true\x00") + "Q\x7f\xff\xff\xff",
		"negative message":    startup("user\x00x\x00replication\x00true\x00") + "Q\xff\xff\xff\xff",
		"junk in copy":        startup("user\x00x\x00replication\x00true\x00") + start + "d\x00\x00\x00\x06r\x01",
		"noise in copy":       startup("user\x00x\x00replication\x00true\x00") + start + string(noise),
		"link of version 999": link + start + "d\x00\x00\x00\x13L\xe7\x03" + strings.Repeat("\x01", 12),
		"link hello of noise": link + start + "d\x00\x00\x00\x13L" + string(noise[:14]),
		"huge link message":   link + start + "d\x7f\xff\xff\xff" + string(noise),
		"link without hello":  link + start + "d\x00\x00\x00\x0dA" + strings.Repeat("\xff", 8),
	} {
		for _, n := range []*nodeproc.Node{r.a, r.b} {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.Options.Port))
			must(t, err)
			_, _ = conn.Write([]byte(junk)) // the node may close in the middle of it
			_ = conn.(*net.TCPConn).CloseWrite()
			must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			if _, err := conn.Read(make([]byte, 1<<16)); isTimeout(err) {
				t.Errorf("%s: the node neither answered nor closed the connection", name)
			}
			_ = conn.Close()
		}
		if !r.a.Process().Running() || !r.b.Process().Running() {
			t.Fatalf("%s: a node has ended", name)
		}
	}
	r.same()
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

// TestOtherCluster gives a node that holds WAL another cluster as upstream. It refuses, says why, and keeps what it has.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	one := startPrimary(ctx, t, pgcluster.Options{Major: 15})
	two := startPrimary(ctx, t, pgcluster.Options{Major: 15})
	proxy, conninfo := through(t, one.Port)
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(conninfo, "")})
	lsn := write(ctx, t, one, 1000)
	must(t, pgcluster.Until(ctx, func() (bool, error) { return received(node) >= float64(lsn.Floor(1<<20)-1<<24), nil }))
	must(t, node.Stop(ctx))
	must(t, proxy.Close())

	moved, err := nodeproc.New(nodeproc.Options{Binary: node.Options.Binary, Dir: node.Options.Dir, Config: fastNode(two.Conninfo(), "")})
	must(t, err)
	must(t, moved.Start())
	waitCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := moved.Process().Wait(waitCtx); err == nil || waitCtx.Err() != nil {
		t.Fatalf("the node goes on with another cluster's WAL: %v", err)
	}
	for _, cluster := range []*pgcluster.Cluster{one, two} {
		id, err := cluster.SystemIdentifier(ctx)
		must(t, err)
		if !strings.Contains(moved.Log(), fmt.Sprint(id)) {
			t.Errorf("the message does not name system identifier %d:\n%s", id, moved.Log())
		}
	}
}

// received returns how much WAL a node has taken in.
func received(n *nodeproc.Node) float64 {
	m, err := n.Metrics()
	if err != nil {
		return 0
	}
	return m["walproxy_feed_wal_bytes_total"]
}
