package continuous

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

const (
	// stepInterval is how often at most the spool is looked at: it changes with every frame.
	stepInterval = 100 * time.Millisecond
	// sealPatience is how long the sealing of windows may stand still before they are archived as they came in.
	sealPatience = 30 * time.Second
)

// Archiver archives a node's WAL. One goroutine runs it.
type Archiver struct {
	spool   Spool
	slot    Slot
	opt     Options
	log     *zap.Logger
	now     func() time.Time
	archive *archive.Archive // nil until the store has answered

	id        archive.Identity
	held      bool     // the slot is there
	begun     bool     // done is set
	done      position // what lies before it in the spool is in the archive for good
	known     []known  // objects that hold WAL from done on
	histories map[protocol.Timeline]bool
	builder   archive.Builder
	buf       []byte // one window
	checkNext bool   // the next group is compared even if it is there

	tailed   time.Time // when the tail was stored last
	sealing  progress
	failures failures
}

// known is an object in the archive.
type known struct {
	archive.Span
	mine bool // this process stored it, or compared it
}

// New returns an archiver of spool. Nothing runs yet.
func New(spool Spool, slot Slot, o Options) *Archiver {
	o.applyDefaults()
	return &Archiver{spool: spool, slot: slot, opt: o, log: o.Logger.Named("archive"), now: time.Now, histories: map[protocol.Timeline]bool{}}
}

// Run archives until ctx ends. What fails is tried again, and WAL stays in the spool meanwhile.
func (a *Archiver) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed := a.spool.Changed()
		again, err := a.step(ctx)
		if ctx.Err() != nil {
			break
		}
		pause := stepInterval
		if err != nil {
			pause = a.failed(err)
			changed = nil
		} else {
			a.recovered()
		}
		if !wait(ctx, pause, nil) || err != nil {
			continue
		}
		wait(ctx, again, changed)
	}
	a.farewell(context.WithoutCancel(ctx))
	return a.builder.Close()
}

// farewellWithin bounds what is stored at the end.
const farewellWithin = 5 * time.Second

// farewell stores once more what there is, so that a node that stops in good order leaves no more than it must. If that fails, it
// is for the next start.
func (a *Archiver) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewellWithin)
	defer cancel()
	a.tailed = time.Time{}
	if !a.begun || a.failures.count > 0 {
		return
	}
	if _, err := a.step(ctx); err != nil {
		a.log.Debug("nothing stored at the end", zap.Error(err))
	}
}

// wait returns when d is over, changed is closed, or ctx ends; it reports false for the last. A d of 0 is for ever.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}

// step archives all that can be archived now. again is when to look again even if nothing changes; 0 is never.
func (a *Archiver) step(ctx context.Context) (again time.Duration, err error) {
	id, ok := a.spool.Identity()
	lines := a.spool.Lines(a.done.timeline, a.done.lsn)
	if !ok || !a.begun && first(lines) == (position{}) {
		return 0, nil
	}
	a.id = id
	if a.begun && a.overtaken(lines) {
		a.begun, a.held, a.done = false, false, position{}
		lines = a.spool.Lines(0, 0)
	}
	if !a.begun {
		if err := a.begin(ctx, lines); err != nil {
			return 0, err
		}
	}
	if err := a.putHistories(ctx, lines); err != nil {
		return 0, err
	}
	for {
		g, ok := next(lines, a.done, a.cell())
		if !ok || !g.complete {
			break
		}
		if !a.ready(g) {
			again = sealPatience
			break
		}
		if err := a.store(ctx, g); err != nil {
			return 0, err
		}
		lines = a.spool.Lines(a.done.timeline, a.done.lsn)
	}
	if a.opt.Tail {
		tail, err := a.tail(ctx, lines)
		if again == 0 || tail != 0 && tail < again {
			again = tail
		}
		return again, err
	}
	return again, nil
}

// cell returns the length of a cell in bytes.
func (a *Archiver) cell() uint64 {
	return max(uint64(a.id.SegmentSize), uint64(a.spool.ResetDistance()))
}

// first returns where the WAL of the spool begins; zero if there is none.
func first(lines []Line) position {
	for _, l := range lines {
		if len(l.Windows) > 0 {
			return position{l.Timeline, l.Windows[0].Start}
		}
	}
	return position{}
}

// overtaken reports whether WAL behind done is no longer in the spool: the slot was invalidated, and retention went on.
func (a *Archiver) overtaken(lines []Line) bool {
	g, ok := next(lines, a.done, a.cell())
	return ok && g.Start > a.done.lsn
}

// progress knows for how long sealing has stood still.
type progress struct {
	group  archive.Span
	sealed int
	since  time.Time
}

// ready reports whether the windows of g are sealed, or will not be.
func (a *Archiver) ready(g group) bool {
	p := progress{group: g.Span, since: a.now()}
	for _, w := range g.windows {
		if w.Sealed {
			p.sealed++
		}
	}
	if p.sealed == len(g.windows) || !a.opt.Sealed {
		return true
	}
	if a.sealing.group != p.group || a.sealing.sealed != p.sealed {
		a.sealing = p
	}
	return a.now().Sub(a.sealing.since) >= sealPatience
}

// putHistories stores the histories of the timelines that are held, before WAL of theirs.
func (a *Archiver) putHistories(ctx context.Context, lines []Line) error {
	var put func(tli protocol.Timeline) error
	put = func(tli protocol.Timeline) error {
		content, ok := a.spool.History(tli)
		if !ok || a.histories[tli] {
			return nil
		}
		h, err := protocol.ParseHistory(tli, content)
		if err != nil {
			return err
		}
		for _, e := range h.Entries {
			if err := put(e.Timeline); err != nil {
				return err
			}
		}
		if _, err := a.archive.PutFile(ctx, archive.BytesFile(protocol.HistoryName(tli), content)); err != nil {
			return err
		}
		a.histories[tli] = true
		return nil
	}
	for _, l := range lines {
		if err := put(l.Timeline); err != nil {
			return err
		}
	}
	return nil
}

// store stores a complete group, unless it is there, and then lets go of it.
func (a *Archiver) store(ctx context.Context, g group) error {
	whole, _ := covered(a.spans(), g.Span)
	var superfluous []archive.Span
	if !whole || a.isKnown(g.Span) && (a.checkNext || a.inside(g.Span)) {
		o, err := a.build(ctx, g)
		if err != nil {
			return err
		}
		if err := a.put(ctx, o, kindWAL); err != nil {
			return err
		}
		if superfluous, err = a.superfluous(ctx, o); err != nil {
			return err
		}
	}
	a.checkNext = false
	if err := a.remove(ctx, superfluous); err != nil {
		return err
	}
	a.done = position{g.Timeline, g.windows[len(g.windows)-1].End}
	a.forget()
	a.report()
	return nil
}

// report tells the slot how far the archive has come.
func (a *Archiver) report() { a.slot.Advance(a.done.timeline, a.done.lsn, a.reached()) }

// reached returns up to where the archive holds WAL without a gap.
func (a *Archiver) reached() protocol.LSN {
	at := a.done
	for moved := true; moved; {
		moved = false
		for _, k := range a.known {
			if k.Timeline >= at.timeline && k.Start <= at.lsn && k.End > at.lsn {
				at, moved = position{k.Timeline, k.End}, true
			}
		}
	}
	return at.lsn
}

func (a *Archiver) spans() []archive.Span {
	spans := make([]archive.Span, len(a.known))
	for i, k := range a.known {
		spans[i] = k.Span
	}
	return spans
}

// inside reports whether there are objects that one of s covers, as a process that died may leave them.
func (a *Archiver) inside(s archive.Span) bool {
	for _, k := range a.known {
		if k.Span != s && k.Timeline == s.Timeline && k.Start >= s.Start && k.End <= s.End {
			return true
		}
	}
	return false
}

func (a *Archiver) isKnown(s archive.Span) bool {
	for _, k := range a.known {
		if k.Span == s {
			return true
		}
	}
	return false
}

// forget drops what lies before done from the list of objects.
func (a *Archiver) forget() {
	kept := a.known[:0]
	for _, k := range a.known {
		if k.Timeline > a.done.timeline || k.Timeline == a.done.timeline && k.End > a.done.lsn {
			kept = append(kept, k)
		}
	}
	a.known = kept
}

// build makes an object of a group.
func (a *Archiver) build(ctx context.Context, g group) (*archive.Object, error) {
	a.builder.Begin(a.id)
	for _, w := range g.windows {
		if err := a.add(ctx, g.Timeline, w); err != nil {
			return nil, err
		}
	}
	return a.builder.Finish()
}

// add adds a window to the builder: its file if it is sealed, else its frames as they are.
func (a *Archiver) add(ctx context.Context, tli protocol.Timeline, w Window) (err error) {
	if w.Sealed {
		a.buf, err = a.spool.Sealed(a.buf[:0], tli, w.Start)
	} else {
		a.buf, err = a.live(ctx, a.buf[:0], tli, w)
	}
	if err != nil {
		return fmt.Errorf("read WAL at %s on timeline %d: %w", w.Start, tli, err)
	}
	return a.builder.Add(a.buf)
}

// live appends the window of the frames that there are up to w.End to dst.
func (a *Archiver) live(ctx context.Context, dst []byte, tli protocol.Timeline, w Window) ([]byte, error) {
	var b link.WindowBuilder
	b.Begin(dst, link.WindowHeader{SystemID: a.id.SystemID, Timeline: tli, SegmentSize: a.id.SegmentSize, WALBlockSize: a.id.WALBlockSize,
		ResetDistance: w.ResetDistance, Start: w.Start})
	if err := a.spool.Frames(ctx, tli, w.Start, w.End, b.Add); err != nil {
		return dst, err
	}
	return b.Finish()
}

// put stores an object, and reads the end of it back if it was not there.
func (a *Archiver) put(ctx context.Context, o *archive.Object, kind string) error {
	began := a.now()
	existed, err := a.archive.Put(ctx, o)
	if err != nil {
		return err
	}
	if !existed && kind == kindWAL {
		if err := a.readBack(ctx, o); err != nil {
			return err
		}
	}
	a.opt.Metrics.stored(kind, o.Header.Bytes, uint64(o.Header.End-o.Header.Start), existed, a.now().Sub(began))
	a.log.Debug("stored", zap.String("object", o.Header.Name()), zap.Int64("bytes", o.Header.Bytes), zap.Bool("existed", existed))
	if !a.isKnown(o.Header.Span) {
		a.known = append(a.known, known{Span: o.Header.Span})
	}
	for i := range a.known {
		if a.known[i].Span == o.Header.Span {
			a.known[i].mine = true
		}
	}
	return nil
}

// readBack compares the last window of an object, and its length, with what the store has now. The store said that it has all of
// it; so an object that was cut off, or is not visible after all, is found before the spool lets go of the WAL.
func (a *Archiver) readBack(ctx context.Context, o *archive.Object) error {
	last := o.Header.Windows[len(o.Header.Windows)-1]
	stored, err := a.archive.Store().Get(ctx, nil, o.Header.Name(), last.Offset, int64(last.Bytes)+1)
	if err != nil {
		return fmt.Errorf("read back what was stored: %w", err)
	}
	own := make([]byte, last.Bytes)
	if n, err := o.ReadAt(own, last.Offset); n < len(own) {
		return fmt.Errorf("read back what was stored: %w", err)
	}
	if string(stored) != string(own) {
		return &archive.CorruptError{Name: o.Header.Name(), Timeline: o.Header.Timeline, LSN: last.Start, Err: errors.New("it is not what was stored a moment ago")}
	}
	return nil
}

// superfluous returns the objects that o covers and that hold the same WAL.
func (a *Archiver) superfluous(ctx context.Context, o *archive.Object) ([]archive.Span, error) {
	var spans []archive.Span
	for _, k := range a.known {
		s := o.Header.Span
		if k.Span == s || k.Timeline != s.Timeline || k.Start < s.Start || k.End > s.End {
			continue
		}
		if !k.mine {
			err := a.archive.Same(ctx, o, k.Span)
			if errors.Is(err, archive.ErrNotExist) {
				err = nil // another node was faster
			}
			if err != nil {
				return nil, err
			}
		}
		spans = append(spans, k.Span)
	}
	return spans, nil
}

// remove deletes objects.
func (a *Archiver) remove(ctx context.Context, spans []archive.Span) error {
	for _, s := range spans {
		if err := a.archive.Store().Delete(ctx, s.Name()); err != nil {
			return err
		}
		for i := range a.known {
			if a.known[i].Span == s {
				a.known = append(a.known[:i], a.known[i+1:]...)
				break
			}
		}
	}
	return nil
}
