// Package demo runs walproxy's main job before the user's eyes: a throwaway primary, two nodes with a compressed link
// between them, a stock standby, pg_receivewal on both nodes, a pgbench load, and at the end a proof that all copies of the
// WAL are the same bytes.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// Options configure a run.
type Options struct {
	Duration time.Duration // of the load
	Clients  int           // pgbench clients
	Keep     bool          // leave everything on disk and say where
	Binary   string        // the walproxy to run as nodes
	Out      io.Writer
}

// ErrProof is the class of errors that say that the copies of the WAL or of the data differ.
var ErrProof = errors.New("proof failed")

// startTimeout bounds each step of the set-up and of the proof.
const startTimeout = 2 * time.Minute

// scene is everything that the demo runs.
type scene struct {
	opt      Options
	dir      string
	primary  *pgcluster.Cluster
	standby  *pgcluster.Cluster
	a, b     *nodeproc.Node
	receiveA *pgcluster.Receivewal
	receiveB *pgcluster.Receivewal
	timeline protocol.Timeline
	from     protocol.LSN // first byte of WAL that all copies hold
}

// Run plays the demo and returns nil only if the proof holds.
func Run(ctx context.Context, opt Options) (err error) {
	s := &scene{opt: opt}
	if s.dir, err = pgcluster.TempDir("walproxy-demo-"); err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() {
		s.stop()
		if opt.Keep {
			fmt.Fprintf(opt.Out, "\nEverything is kept in %s\n", s.dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(s.dir))
	}()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	return s.prove(ctx)
}

func (s *scene) say(format string, args ...any) { fmt.Fprintf(s.opt.Out, format+"\n", args...) }

func (s *scene) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	install, err := pgcluster.FindAny()
	if err != nil {
		return fmt.Errorf("find a PostgreSQL server with its client tools: %w; `make demo` installs one, or: apt-get install postgresql", err)
	}
	s.say("PostgreSQL %d from %s", install.Major, install.Bin)
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"primary", func(ctx context.Context) error { return s.startPrimary(ctx, install.Major) }},
		{"node A, follows the primary", s.startA},
		{"node B, follows node A over a compressed link", s.startB},
		{"standby, a stock PostgreSQL that follows node B", s.startStandby},
		{"pg_receivewal on node A and on node B", s.startReceivers},
	}
	for _, step := range steps {
		started := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("start %s: %w", step.what, err)
		}
		s.say("  started %-52s %5.1f s", step.what, time.Since(started).Seconds())
	}
	return nil
}

func (s *scene) startPrimary(ctx context.Context, major int) (err error) {
	s.primary, err = pgcluster.Create(ctx, pgcluster.Options{
		Major: major, Dir: filepath.Join(s.dir, "primary"), KeepMiB: 16384, Autovacuum: true,
		Conf: []string{"shared_buffers = 128MB", "max_wal_size = 4GB"},
	})
	if err != nil {
		return err
	}
	if err := s.primary.Start(ctx); err != nil {
		return err
	}
	if _, err := s.primary.Pgbench(ctx, "-i", "-q", "-s", "10"); err != nil {
		return err
	}
	return s.primary.Exec(ctx, "CHECKPOINT")
}

func (s *scene) startA(ctx context.Context) (err error) {
	s.a, err = s.startNode(ctx, "node-a", s.primary.Conninfo())
	return err
}

func (s *scene) startB(ctx context.Context) (err error) {
	s.b, err = s.startNode(ctx, "node-b", s.a.Conninfo())
	return err
}

func (s *scene) startNode(ctx context.Context, name, upstream string) (*nodeproc.Node, error) {
	n, err := nodeproc.New(nodeproc.Options{
		Binary: s.opt.Binary, Dir: filepath.Join(s.dir, name), Upstream: upstream + " application_name=" + name,
	})
	if err != nil {
		return nil, err
	}
	return n, n.StartReady(ctx)
}

func (s *scene) startStandby(ctx context.Context) (err error) {
	dir := filepath.Join(s.dir, "standby")
	if s.standby, err = s.primary.BaseBackup(ctx, dir, s.primary.Conninfo(), "--wal-method=none", "--checkpoint=fast"); err != nil {
		return err
	}
	if err := s.standby.MakeStandby(s.b.Conninfo(), ""); err != nil {
		return err
	}
	return s.standby.Start(ctx)
}

func (s *scene) startReceivers(ctx context.Context) (err error) {
	if s.timeline, err = s.primary.Timeline(ctx); err != nil {
		return err
	}
	lsn, err := s.primary.FlushLSN(ctx)
	if err != nil {
		return err
	}
	s.from = lsn.Floor(s.primary.Options.SegmentBytes())
	if s.receiveA, err = pgcluster.PgReceivewal(filepath.Join(s.dir, "receivewal-a"), s.a.Conninfo(), "--slot=demo", "--create-slot", "--if-not-exists"); err != nil {
		return err
	}
	<-s.receiveA.Exited() // --create-slot makes the slot and ends
	if s.receiveA, err = pgcluster.PgReceivewal(filepath.Join(s.dir, "receivewal-a"), s.a.Conninfo(), "--slot=demo"); err != nil {
		return err
	}
	s.receiveB, err = pgcluster.PgReceivewal(filepath.Join(s.dir, "receivewal-b"), s.b.Conninfo())
	return err
}

// load runs pgbench and shows the table while it runs.
func (s *scene) load(ctx context.Context) error {
	seconds := max(1, int(s.opt.Duration.Seconds()))
	s.say("\npgbench, %d clients, %d s\n", s.opt.Clients, seconds)
	ctx, cancel := context.WithTimeout(ctx, s.opt.Duration+startTimeout)
	defer cancel()
	shown, stopTable := make(chan error, 1), make(chan struct{})
	go func() { shown <- s.showTable(ctx, stopTable) }() // ends when stopTable closes; load waits for it
	_, err := s.primary.Pgbench(ctx, "-n", "-c", strconv.Itoa(s.opt.Clients), "-j", "2", "-T", strconv.Itoa(seconds))
	close(stopTable)
	return errors.Join(err, <-shown)
}

// stop ends what runs, consumers first. Errors do not matter any more.
func (s *scene) stop() {
	for _, r := range []*pgcluster.Receivewal{s.receiveA, s.receiveB} {
		if r != nil {
			r.Kill()
		}
	}
	for _, c := range []*pgcluster.Cluster{s.standby, s.primary} {
		if c != nil {
			_ = c.Kill9()
		}
	}
	for _, n := range []*nodeproc.Node{s.b, s.a} {
		if n != nil {
			n.Kill()
		}
	}
}
