package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// What the fan-out part runs, and its goals.
const (
	fanConsumers = 100
	fanRate      = 10e6 // bytes of WAL per second
)

// fanout measures what many consumers with slots cost one node: fsyncs, memory, and how soon the newest WAL is with all of them.
func (b *bench) fanout(ctx context.Context) error {
	if err := b.slotSaves(ctx); err != nil {
		return fmt.Errorf("fsyncs: %w", err)
	}
	b.report.Line("### One node, %d consumers\n", fanConsumers)
	b.report.Line("Consumers are sessions of the bare protocol in the measuring process, over TCP on loopback, each with a slot, each reporting what it\n"+
		"has at most every %s; they share the CPUs with primary and node. INSERTs write WAL at %.0f MB/s for %d s. A further session, at the\n"+
		"primary itself, notes when the primary sent which LSN (the time in its messages: right after the flush). The delay is from then\n"+
		"until the consumer has read that byte; \"all\" is the slowest of all consumers for each message of the primary. Memory is the node's\n"+
		"resident memory: with no consumer after as much WAL; while all stream; and the highest while all begin at once at the oldest\n"+
		"WAL, so that each reads and decodes the spool by itself.\n", reportEvery, fanRate/1e6, b.seconds)
	b.report.Line("| codec | WAL MB/s | delay p50 ms | p99 ms | all p50 ms | all p99 ms | node MiB with 0 | with %d | MiB each | catching up, MiB each |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|", fanConsumers)
	for _, codec := range strings.Split(b.codecs, ",") {
		if err := b.fanoutWith(ctx, codec, ""); err != nil {
			return fmt.Errorf("codec %s: %w", codec, err)
		}
	}
	if err := b.fanoutWith(ctx, "none", "spool:\n  fsync: off\n"); err != nil {
		return fmt.Errorf("without fsync: %w", err)
	}
	b.report.Line("")
	return nil
}

// slotSaves runs pgbench with one consumer that reports as often as it can, and counts fsyncs.
func (b *bench) slotSaves(ctx context.Context) error {
	primary, node, err := b.fanPair(ctx, "auto", "")
	defer func() { b.closePair(primary, node) }()
	if err != nil {
		return err
	}
	start, err := primary.FlushLSN(ctx)
	if err != nil {
		return err
	}
	crowd, err := b.at(ctx, node.Options.Port, 1, start, true)
	defer func() { err = errors.Join(err, crowd.leave()) }()
	if err != nil {
		return err
	}
	before, err := node.Metrics()
	if err != nil {
		return err
	}
	const committed = "SELECT sum(xact_commit) FROM pg_stat_database"
	commitsBefore, err := number(ctx, primary, committed)
	if err != nil {
		return err
	}
	began, reports := time.Now(), crowd.reports()
	if _, err := primary.Pgbench(ctx, "-n", "-c", "4", "-j", "2", "-T", strconv.Itoa(b.seconds)); err != nil {
		return err
	}
	seconds := time.Since(began).Seconds()
	after, err := node.Metrics()
	if err != nil {
		return err
	}
	per := func(name string) float64 { return (after[name] - before[name]) / seconds }
	commits, err := number(ctx, primary, committed)
	if err != nil {
		return err
	}
	b.report.Line("### Fsyncs\n")
	b.report.Line("pgbench -c 4 for %d s, one consumer with a slot. Per second: %.0f commits, %.0f reports of the consumer, %.0f fsyncs of the spool\n"+
		"(walproxy_spool_fsync_seconds_count), %.1f saves of the slots (walproxy_slots_saves_total; each is an fsync of the file and one of\n"+
		"its directory).\n", b.seconds, (commits-commitsBefore)/seconds, float64(crowd.reports()-reports)/seconds, per("walproxy_spool_fsync_seconds_count"), per("walproxy_slots_saves_total"))
	return nil
}

// number returns the only value of a query.
func number(ctx context.Context, c *pgcluster.Cluster, sql string) (float64, error) {
	text, err := c.Value(ctx, sql)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

// fanPair starts a primary and a node behind it.
func (b *bench) fanPair(ctx context.Context, codec, more string) (primary *pgcluster.Cluster, node *nodeproc.Node, err error) {
	if primary, err = b.primary(ctx, 5); err != nil {
		return primary, nil, err
	}
	if err := primary.Exec(ctx, "CREATE TABLE fan (id bigint, name text, at timestamptz)"); err != nil {
		return primary, nil, err
	}
	settings := fmt.Sprintf("  max_connections: %d\nrecompress:\n  codec: %s\n%s", fanConsumers+20, codec, more)
	node, err = b.node(ctx, primary.Conninfo(), settings)
	return primary, node, err
}

func (b *bench) closePair(primary *pgcluster.Cluster, node *nodeproc.Node) {
	closeNode(node)
	if primary != nil {
		_ = primary.Close()
	}
}

func (b *bench) fanoutWith(ctx context.Context, codec, more string) (err error) {
	primary, node, err := b.fanPair(ctx, codec, more)
	defer func() { b.closePair(primary, node) }()
	if err != nil {
		return err
	}
	oldest, err := primary.FlushLSN(ctx)
	if err != nil {
		return err
	}
	if _, err := writeAtRate(ctx, primary, b.seconds); err != nil {
		return err
	}
	alone, err := memoryMiB(node, "VmRSS")
	if err != nil {
		return err
	}
	start, err := primary.FlushLSN(ctx)
	if err != nil {
		return err
	}
	reference, err := b.at(ctx, primary.Port, 1, start, false)
	if err != nil {
		return err
	}
	crowd, err := b.at(ctx, node.Options.Port, fanConsumers, start, true)
	if err != nil {
		return errors.Join(err, reference.leave())
	}
	rate, err := writeAtRate(ctx, primary, b.seconds)
	together, errMemory := memoryMiB(node, "VmRSS")
	end, errEnd := primary.FlushLSN(ctx)
	err = errors.Join(err, errMemory, errEnd, crowd.await(ctx, end), reference.await(ctx, end), crowd.leave(), reference.leave())
	if err != nil {
		return err
	}
	each, all := delays(reference.consumers[0].arrivals, crowd.consumers)
	behind, err := b.catchUp(ctx, node, oldest.Floor(16<<20), end)
	if err != nil {
		return err
	}
	ms := func(sorted []time.Duration, share float64) float64 {
		return float64(sorted[int(float64(len(sorted)-1)*share)]) / 1e6
	}
	if more != "" {
		codec += ", no fsync"
	}
	b.report.Line("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.0f | %.0f | %.2f | %.2f |", codec, rate/1e6, ms(each, 0.5), ms(each, 0.99),
		ms(all, 0.5), ms(all, 0.99), alone, together, (together-alone)/fanConsumers, (behind-alone)/fanConsumers)
	return nil
}

// catchUp lets all consumers begin at once at old WAL and returns the node's highest memory meanwhile, in MiB.
func (b *bench) catchUp(ctx context.Context, node *nodeproc.Node, from, to protocol.LSN) (float64, error) {
	crowd, err := b.at(ctx, node.Options.Port, fanConsumers, from, false)
	if err != nil {
		return 0, err
	}
	var peak float64
	err = pgcluster.Until(ctx, func() (bool, error) {
		now, err := memoryMiB(node, "VmRSS")
		peak = max(peak, now)
		return crowd.slowest() >= min(to, from+64<<20), err
	})
	return peak, errors.Join(err, crowd.leave())
}

// writeAtRate inserts rows at fanRate for so many seconds and returns the rate that came about, in bytes per second.
func writeAtRate(ctx context.Context, primary *pgcluster.Cluster, seconds int) (float64, error) {
	conn, err := primary.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	from, err := primary.FlushLSN(ctx)
	if err != nil {
		return 0, err
	}
	const tick = 10 * time.Millisecond
	rows := int(fanRate * tick.Seconds() / 92) // a row makes some 92 bytes of WAL
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	began := time.Now()
	for time.Since(began) < time.Duration(seconds)*time.Second {
		insert := fmt.Sprintf("INSERT INTO fan SELECT n, md5(n::text), now() FROM generate_series(1, %d) n", rows)
		if _, err := conn.Exec(ctx, insert).ReadAll(); err != nil {
			return 0, err
		}
		<-ticker.C
	}
	took := time.Since(began).Seconds()
	to, err := primary.FlushLSN(ctx)
	return float64(to-from) / took, err
}

// delays returns for each message of the primary how long each consumer waited for its last byte, and how long the slowest
// did; both sorted.
func delays(reference []arrival, consumers []*consumer) (each, all []time.Duration) {
	for _, sent := range reference {
		slowest := time.Duration(0)
		for _, c := range consumers {
			i := sort.Search(len(c.arrivals), func(i int) bool { return c.arrivals[i].end >= sent.end })
			if i == len(c.arrivals) {
				continue // written after the end of the measurement
			}
			d := c.arrivals[i].here.Sub(sent.sentTime)
			each, slowest = append(each, d), max(slowest, d)
		}
		all = append(all, slowest)
	}
	slices.SortFunc(each, cmp.Compare)
	slices.SortFunc(all, cmp.Compare)
	return each, all
}

// crowd are consumers that stream.
type crowd struct {
	consumers []*consumer
	wait      sync.WaitGroup
	mu        sync.Mutex
	failed    error
}

// at starts consumers at lsn, once the server or node has that.
func (b *bench) at(ctx context.Context, port, n int, lsn protocol.LSN, slots bool) (all *crowd, err error) {
	all = &crowd{}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.leave())
		}
	}()
	for i := range n {
		c, err := dialConsumer(port)
		if err != nil {
			return all, err
		}
		all.consumers = append(all.consumers, c)
		err = pgcluster.Until(ctx, func() (bool, error) {
			end, err := c.end()
			return end >= lsn, err
		})
		if err != nil {
			return all, err
		}
		name := ""
		if slots {
			name = fmt.Sprintf("bench_%d", i)
		}
		if err := c.start(name, lsn); err != nil {
			return all, err
		}
		all.wait.Go(func() {
			if err := c.stream(); err != nil {
				all.mu.Lock()
				all.failed = cmp.Or(all.failed, err)
				all.mu.Unlock()
			}
		})
	}
	return all, nil
}

func (c *crowd) reports() (n int64) {
	for _, one := range c.consumers {
		n += one.reports.Load()
	}
	return n
}

// slowest returns how far all consumers are.
func (c *crowd) slowest() protocol.LSN {
	lsn := protocol.LSN(1<<64 - 1)
	for _, one := range c.consumers {
		lsn = min(lsn, protocol.LSN(one.at.Load()))
	}
	return lsn
}

// await waits until all consumers have WAL up to lsn.
func (c *crowd) await(ctx context.Context, lsn protocol.LSN) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return pgcluster.Until(ctx, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.slowest() >= lsn, c.failed
	})
}

// leave ends all consumers and returns the first reason why one had ended before.
func (c *crowd) leave() error {
	for _, one := range c.consumers {
		_ = one.conn.Close()
	}
	c.wait.Wait()
	return c.failed
}
