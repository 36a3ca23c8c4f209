package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestKillsSoak hits primary, both nodes and the standby behind them under load, in random combination: SIGKILL, or SIGSTOP
// and later SIGCONT, and brings them back in random order. The far standby is the synchronous one, and everybody works by slots.
//
// Whenever the primary is dead, the standby has every commit that was acknowledged. At the end it has the primary's WAL byte for
// byte, and so has pg_receivewal on either node; both spools are sound.
func TestKillsSoak(t *testing.T) {
	t.Parallel()
	choice := random(t)
	n := rounds(12, 200)
	k := startKills(setting(t, patience+time.Duration(n)*20*time.Second), t, choice)
	for round := range n {
		k.round(round)
	}
	k.end()
}

// Who may be hit.
const (
	hitPrimary = iota
	hitA
	hitB
	hitStandby
	hitAll // how many there are
)

var hitNames = [hitAll]string{"primary", "A", "B", "standby"}

// kills is a relay that is hit, and what is known of it.
type kills struct {
	*relay
	choice *rand.Rand
	ledger *ledger
	bulk   chan struct{} // closed when the last bulk insert has ended
	checks int           // how often the standby was looked at while the primary was dead
}

// startKills starts primary → A ═ B → standby, each a consumer of the one before it by a slot. Nothing is kept but by slots.
func startKills(ctx context.Context, t *testing.T, choice *rand.Rand) *kills {
	t.Helper()
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, KeepMiB: 32 << 10, Conf: fastRetry})
	r := &relay{ctx: ctx, t: t, primary: primary, standby: cloneOf(ctx, t, primary)}
	node := func(upstream, consumer string) *nodeproc.Node {
		config := fastNode(upstream, fmt.Sprintf("acknowledge:\n  write: consumer %s\n  flush: consumer %s\nspool:\n  keep: 0\n", consumer, consumer))
		config = strings.Replace(config, "upstream:\n", "upstream:\n  slot: node\n  create_slot: on\n", 1)
		return startNode(ctx, t, nodeproc.Options{Config: config})
	}
	r.a = node(primary.Conninfo()+" application_name=sync", "b")
	r.b = node(r.a.Conninfo()+" application_name=b", "far")
	r.from = write(ctx, t, primary, 1).Floor(primary.Options.SegmentBytes())
	for _, n := range []*nodeproc.Node{r.a, r.b} {
		for _, slot := range []string{"far", "receivewal"} {
			if out, err := tool(t, n, "slots", "create", slot); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	r.receiveA, r.receiveB = receive(t, r.a.Conninfo(), "--slot=receivewal"), receive(t, r.b.Conninfo(), "--slot=receivewal")
	must(t, r.standby.MakeStandby(r.b.Conninfo()+" application_name=far", "far"))
	must(t, r.standby.Start(ctx))
	mustBeSynchronous(ctx, t, primary)
	r.caughtUp(write(ctx, t, primary, 1))
	if out, err := tool(t, r.a, "slots", "drop", "far"); err != nil { // nobody uses it
		t.Fatalf("%v: %s", err, out)
	}
	return &kills{relay: r, choice: choice, ledger: startLedger(ctx, t, primary)}
}

// round lets some commits pass, hits, and mends.
func (k *kills) round(n int) {
	k.t.Helper()
	k.ledger.more(k.ctx, k.t, 1+k.choice.IntN(60))
	k.insert(1 + k.choice.IntN(20000))
	victims := k.choice.Perm(hitAll)[:1+min(k.choice.IntN(hitAll), k.choice.IntN(hitAll))]
	frozen, long := map[int]bool{}, false
	var words []string
	for _, who := range victims {
		frozen[who] = k.choice.IntN(4) == 0
		what := "kill"
		if frozen[who] {
			what, long = "stop", long || k.choice.IntN(8) == 0
			must(k.t, k.signal(who, syscall.SIGSTOP))
		} else {
			must(k.t, k.kill(who))
		}
		words = append(words, what+" "+hitNames[who])
	}
	k.t.Logf("round %d: %s, %d commits", n, strings.Join(words, ", "), k.ledger.count())
	if long { // everybody gives up those who are silent
		began := time.Now()
		must(k.t, pgcluster.Until(k.ctx, func() (bool, error) { return time.Since(began) > 6*time.Second, nil }))
	}
	k.mend(victims, frozen)
	<-k.bulk
}

// mend brings the victims back in random order. Before the primary comes back, the standby is looked at if it is there.
func (k *kills) mend(victims []int, frozen map[int]bool) {
	k.t.Helper()
	away, restarted := map[int]bool{}, false
	for _, who := range victims {
		away[who] = true
	}
	k.choice.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	for _, who := range victims {
		if who == hitPrimary && !frozen[who] && !away[hitStandby] {
			k.promised(restarted)
		}
		if frozen[who] {
			must(k.t, k.signal(who, syscall.SIGCONT))
		} else {
			must(k.t, k.start(who))
		}
		restarted = restarted || who == hitStandby && !frozen[who]
		away[who] = false
	}
}

// promised checks that the standby has every commit that was acknowledged, in what it has received by now. One that was
// restarted does not know what it had received, and has not replayed all of it yet.
func (k *kills) promised(restarted bool) {
	k.t.Helper()
	k.checks++
	if restarted {
		must(k.t, pgcluster.Until(k.ctx, func() (bool, error) { return len(k.ledger.missing(k.ctx, k.t, k.standby)) == 0, nil }))
		return
	}
	received, err := k.standby.FlushLSN(k.ctx)
	must(k.t, err)
	must(k.t, k.standby.WaitReplayed(k.ctx, received))
	k.ledger.check(k.ctx, k.t, k.standby)
}

// insert writes WAL in bulk beside the ledger, until it is done or the primary dies.
func (k *kills) insert(rows int) {
	done := make(chan struct{})
	k.bulk = done
	go func() {
		defer close(done)
		_ = k.primary.Exec(k.ctx, fmt.Sprintf("INSERT INTO t (text) SELECT md5(n::text) FROM generate_series(1, %d) n", rows))
	}()
}

func (k *kills) node(who int) *nodeproc.Node {
	if who == hitA {
		return k.a
	}
	return k.b
}

func (k *kills) cluster(who int) *pgcluster.Cluster {
	if who == hitPrimary {
		return k.primary
	}
	return k.standby
}

func (k *kills) kill(who int) error {
	if who == hitA || who == hitB {
		k.node(who).Kill()
		return nil
	}
	return k.cluster(who).Kill9()
}

func (k *kills) start(who int) error {
	if who == hitA || who == hitB {
		return k.node(who).StartReady(k.ctx)
	}
	return k.cluster(who).Start(k.ctx)
}

func (k *kills) signal(who int, sig syscall.Signal) error {
	if who == hitA || who == hitB {
		return k.node(who).Process().Signal(sig)
	}
	return k.cluster(who).SignalAll(sig)
}

// end compares everything.
func (k *kills) end() {
	k.t.Helper()
	k.ledger.stop(k.t)
	k.same()
	k.ledger.check(k.ctx, k.t, k.primary)
	k.ledger.check(k.ctx, k.t, k.standby)
	for _, n := range []*nodeproc.Node{k.a, k.b} {
		if out, err := exec.Command(n.Options.Binary, "inspect", "--check", n.DataDir()).CombinedOutput(); err != nil {
			k.t.Errorf("inspect --check: %v\n%s", err, out)
		}
		for _, slot := range jsonOf[[]slotJSON](k.t, n, "slots", "list") {
			if slot.Status != "reserved" {
				k.t.Errorf("slot at the end: %+v", slot)
			}
		}
	}
	k.t.Logf("the standby was looked at %d times while the primary was dead", k.checks)
}
