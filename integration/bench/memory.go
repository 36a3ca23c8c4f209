package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// memory measures the resident memory of both nodes while a consumer of node B falls 1 GiB behind and catches up.
func (b *bench) memory(ctx context.Context) error {
	primary, err := b.primary(ctx, 1)
	if primary != nil {
		defer func() { _ = primary.Close() }()
	}
	if err != nil {
		return err
	}
	c, err := b.chain(ctx, primary, "auto")
	defer c.close()
	if err != nil {
		return err
	}
	from, err := primary.FlushLSN(ctx)
	if err != nil {
		return err
	}
	if err := waitWAL(ctx, primary, c.receiver, from); err != nil {
		return err
	}
	if err := c.receiver.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	to, err := writeRows(ctx, primary, from+protocol.LSN(b.behindMiB<<20))
	if err != nil {
		return err
	}
	behind := [2]float64{}
	for i, n := range c.nodes {
		if behind[i], err = memoryMiB(n, "VmRSS"); err != nil {
			return err
		}
	}
	started := time.Now()
	if err := c.receiver.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := waitWAL(ctx, primary, c.receiver, to); err != nil {
		return err
	}
	b.report.Line("### Memory\n")
	b.report.Line("pg_receivewal on node B stopped while INSERTs wrote %d MiB of WAL, then caught up in %.1f s. Resident memory in MiB.\n",
		(to-from)>>20, time.Since(started).Seconds())
	b.report.Line("| node | while the consumer was behind | highest, catch-up included |\n|---|---:|---:|")
	for i, n := range c.nodes {
		peak, err := memoryMiB(n, "VmHWM")
		if err != nil {
			return err
		}
		b.report.Line("| %s | %.0f | %.0f |", string(rune('A'+i)), behind[i], peak)
	}
	b.report.Line("")
	return nil
}

// writeRows inserts rows until the WAL reaches target and returns where it ends. It writes faster than pgbench.
func writeRows(ctx context.Context, primary *pgcluster.Cluster, target protocol.LSN) (protocol.LSN, error) {
	if err := primary.Exec(ctx, "CREATE TABLE filler (id bigint, name text, at timestamptz)"); err != nil {
		return 0, err
	}
	for {
		if err := primary.Exec(ctx, "INSERT INTO filler SELECT n, md5(n::text), now() FROM generate_series(1, 300000) n"); err != nil {
			return 0, err
		}
		if lsn, err := primary.FlushLSN(ctx); err != nil || lsn >= target {
			return lsn, err
		}
	}
}

// memoryMiB reads a size of the node's process from /proc, in MiB.
func memoryMiB(n *nodeproc.Node, key string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Process().PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in the status of process %d", key, n.Process().PID())
}
