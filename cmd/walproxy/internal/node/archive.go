package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"walproxy/archive"
	"walproxy/archive/continuous"
	"walproxy/archive/stores"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots"
)

// archiver is the node's archiver and what it holds; nil if nothing is archived.
type archiver struct {
	*continuous.Archiver
	store  archive.Store
	slot   *archiveSlot
	logger *zap.Logger
}

// storeRetryFor is how long a store tries a request again by itself. The archiver tries again after that, and tells.
const storeRetryFor = 10 * time.Second

// archivePID stands for the archiver where sessions have a pid; theirs count up from 1.
const archivePID = math.MaxInt32

func (n *Node) openArchiver(reg prometheus.Registerer) error {
	metrics := continuous.NewMetrics(reg)
	c := n.config.Archive
	if c.Store == "" {
		return nil
	}
	store, err := stores.Open(string(c.Store), stores.Options{Timeout: c.Timeout, RetryFor: storeRetryFor})
	if err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	slot := &archiveSlot{node: n, name: c.Slot, peer: store.String()}
	n.archiver = &archiver{store: store, slot: slot, logger: n.logger, Archiver: continuous.New(&archiveSpool{n}, slot, continuous.Options{
		Store: store, Tail: c.Tail, TailInterval: c.TailInterval, TailBytes: uint64(c.TailBytes), Sealed: n.config.Spool.Seal,
		Logger: n.logger, Metrics: metrics,
	})}
	return nil
}

func (a *archiver) run(ctx context.Context) error {
	defer a.slot.release()
	return a.Run(ctx)
}

// lookFor is how long a node that holds nothing waits for the archive to tell how far it reaches.
const lookFor = 30 * time.Second

// end returns up to where the archive holds WAL; 0 if it holds none, or cannot be asked now. Then the node begins where the
// upstream's slot is, and the archiver tells if that leaves a hole.
func (a *archiver) end(ctx context.Context) (protocol.Timeline, protocol.LSN) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	opened, err := archive.Open(ctx, a.store)
	var last archive.Span
	if err == nil {
		last, err = continuous.End(ctx, opened, 0, 0)
	}
	if err != nil && !errors.Is(err, archive.ErrNoIdentity) {
		a.logger.Warn("the archive cannot be asked how far it reaches; beginning where the upstream says", zap.Error(err))
	}
	return last.Timeline, last.End
}

func (a *archiver) close() error {
	if a == nil {
		return nil
	}
	return a.store.Close()
}

// archiveSpool shows the spool to the archiver. It implements continuous.Spool.
type archiveSpool struct{ node *Node }

func (s *archiveSpool) Identity() (archive.Identity, bool) {
	id, known := s.node.log.Identity()
	return archive.Identity{SystemID: id.SystemID, Major: id.Major(), SegmentSize: id.SegmentSize, WALBlockSize: id.WALBlockSize}, known
}

func (s *archiveSpool) ResetDistance() uint32 { return s.node.log.ResetDistance() }

func (s *archiveSpool) History(tli protocol.Timeline) ([]byte, bool) { return s.node.log.History(tli) }

func (s *archiveSpool) Changed() <-chan struct{} { return s.node.log.Changed() }

func (s *archiveSpool) Lines(tli protocol.Timeline, start protocol.LSN) []continuous.Line {
	infos := s.node.log.Lines(tli, start)
	lines := make([]continuous.Line, len(infos))
	for i, info := range infos {
		lines[i] = continuous.Line{Timeline: info.Timeline, End: info.End, Next: info.Next, Windows: make([]continuous.Window, len(info.Windows))}
		for j, w := range info.Windows {
			lines[i].Windows[j] = continuous.Window{Start: w.Start, End: w.End, ResetDistance: w.ResetDistance, Sealed: w.Sealed, Closed: w.Ended}
		}
	}
	return lines
}

func (s *archiveSpool) Sealed(dst []byte, tli protocol.Timeline, start protocol.LSN) (_ []byte, err error) {
	file, h, err := s.node.log.OpenSealed(tli, start)
	if err != nil {
		return dst, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	from := len(dst)
	dst = append(dst, make([]byte, h.FileBytes())...)
	if n, err := file.ReadAt(dst[from:], 0); n < len(dst)-from {
		return dst[:from], err
	}
	return dst, nil
}

func (s *archiveSpool) Frames(ctx context.Context, tli protocol.Timeline, start, end protocol.LSN, visit func(*link.Frame) error) (err error) {
	r, err := s.node.log.OpenReader(tli, start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	toTheEnd := s.endsIn(tli, start)
	for {
		f, err := r.Next(ctx) // never waits: end is held
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(f); err != nil {
			return err
		}
		if !toTheEnd && f.End() >= end {
			return nil
		}
	}
}

// endsIn reports whether tli ends in the window that begins at start.
func (s *archiveSpool) endsIn(tli protocol.Timeline, start protocol.LSN) bool {
	for _, l := range s.node.log.Lines(tli, start) {
		if l.Timeline == tli {
			return l.Next != 0 && len(l.Windows) == 1
		}
	}
	return false
}

// archiveSlot is the archiver's slot, and its entry among the consumers. It implements continuous.Slot.
type archiveSlot struct {
	node     *Node
	name     string
	peer     string // the store
	consumer *slots.Consumer
	timeline protocol.Timeline // of consumer
}

func (s *archiveSlot) Hold(lsn protocol.LSN) (from protocol.LSN, lost bool, err error) {
	store := s.node.store
	slot, ok := store.Get(s.name)
	if !ok {
		if err := store.Create(s.name, false, lsn, 0); err != nil {
			return 0, false, err
		}
	}
	if err := store.Acquire(s.name, archivePID); err != nil {
		return 0, false, err
	}
	lost = ok && (slot.Invalidated != "" || slot.RestartLSN != 0 && slot.RestartLSN < lsn)
	if !lost && ok && slot.RestartLSN != 0 {
		return slot.RestartLSN, false, nil
	}
	if err := store.Advance(s.name, lsn, true); err != nil {
		return 0, lost, err
	}
	return lsn, lost, store.Flush()
}

func (s *archiveSlot) Advance(tli protocol.Timeline, stored, reached protocol.LSN) {
	_ = s.node.store.Advance(s.name, stored, true) // it is there, and held; one that was shed holds WAL again from here on
	if s.consumer == nil || s.timeline != tli {
		s.leave()
		s.timeline = tli
		s.consumer = s.node.registry.Register(slots.Info{Name: s.name, Peer: s.peer, PID: archivePID, Slot: s.name, Timeline: tli, Start: reached})
		s.consumer.SetState("streaming")
	}
	s.consumer.SetSent(reached)
	s.consumer.Report(protocol.Status{Write: reached, Flush: reached})
}

func (s *archiveSlot) leave() {
	if s.consumer != nil {
		s.consumer.Close()
		s.consumer = nil
	}
}

func (s *archiveSlot) release() {
	s.leave()
	s.node.store.Release(s.name, archivePID)
}
