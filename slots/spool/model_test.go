package spool

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs/memfs"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of the random tests; 0: the time")
	roundsFlag = flag.Int("rounds", 60, "rounds of the random tests")
)

// model is what a log should hold, driven by random steps on a file system that fails and crashes.
type model struct {
	t         *testing.T
	rng       *rand.Rand
	disk      *memfs.FS
	log       *Log
	frames    []*link.Frame // appended, as far as they may still be there
	cut       []*link.Frame // whose Append failed since: of the last one the disk may hold all, if what was not written is zeros
	confirmed int           // how many of them Sync confirmed
	keep      protocol.LSN  // highest argument of Retain
	mayReturn bool          // a removal that could not be made durable may be undone by a crash
	gone      []*link.Frame // removed, if they may return
	stream    uint32
	whole     bool // append fills the window
}

var errCrash = errors.New("power lost")

// TestRandomSteps appends, syncs, retains, reads, closes, kills and crashes at random and compares with a model.
func TestRandomSteps(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for round := range *roundsFlag {
		t.Logf("round %d: go test -run %s -seed %d -rounds 1", round, t.Name(), seed+uint64(round))
		m := &model{t: t, rng: rand.New(rand.NewPCG(seed+uint64(round), 1)), disk: memfs.New()}
		m.open()
		for range 200 {
			m.step()
		}
		m.reopen(m.disk)
		_ = m.log.Close()
		if t.Failed() {
			return
		}
	}
}

func (m *model) open() {
	m.t.Helper()
	l, err := Open("data", Options{FS: m.disk, ResetDistance: distance})
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.log = l
	if err := l.SetIdentity(identity); err != nil {
		m.t.Fatal(err)
	}
}

// reopen opens what a crash left and checks it.
func (m *model) reopen(disk *memfs.FS) {
	m.t.Helper()
	m.disk = disk
	if err := m.log.Close(); err != nil && !errors.Is(err, errCrash) {
		m.t.Logf("close after a fault: %v", err)
	}
	m.disk = disk.Kill() // what Close of the old log did above is not part of the crash
	m.open()
	m.compare()
}

func (m *model) step() {
	switch n := m.rng.IntN(100); {
	case n < 65:
		m.append()
	case n < 68:
		m.burst()
	case n < 80:
		m.sync()
	case n < 85:
		m.read()
	case n < 86:
		m.seal()
	case n < 88:
		m.retain()
	case n < 90:
		m.endTimeline()
	case n < 92:
		m.full()
	case n < 94:
		left := m.disk.Kill()
		m.reopen(left)
	case n < 96:
		if err := m.log.Close(); err != nil {
			m.t.Fatal(err)
		}
		m.confirmed = len(m.frames)
		m.reopen(m.disk)
	case n < 98:
		m.reopen(m.disk.Crash(m.rng))
	default:
		m.crashWithin()
	}
}

// crashWithin loses the power within one of the next few changes to the disk, retrying nothing.
func (m *model) crashWithin() {
	at := m.disk.Steps() + m.rng.IntN(12)
	m.disk.Inject(func(op memfs.Op) error {
		if op.Step >= at {
			return errCrash
		}
		return nil
	})
	for m.disk.Steps() <= at {
		before := len(m.frames)
		switch m.rng.IntN(8) {
		case 0:
			m.sync()
		case 5:
			m.burst()
		case 3, 4:
			m.seal()
		case 1:
			m.retain()
		case 2:
			m.endTimeline()
		default:
			m.append()
		}
		if m.disk.Steps() > at && len(m.frames) == before {
			break
		}
	}
	m.reopen(m.disk.Crash(m.rng))
}

// next returns a frame that may follow.
func (m *model) next() *link.Frame {
	s := m.log.State()
	if s.Timeline == 0 {
		s.Timeline, s.End = 1, protocol.LSN(m.rng.Uint64N(1<<40))
	}
	room := int(s.End.Next(distance) - s.End)
	length := 1 + m.rng.IntN(min(room, 1+m.rng.IntN(300<<10)))
	if m.whole || m.rng.IntN(8) == 0 {
		length = room
	}
	payload := m.rng.IntN(min(length, 3000))
	f := &link.Frame{Timeline: s.Timeline, Start: s.End, RawLen: uint32(length), Codec: link.CodecZstd, RawSum: m.rng.Uint32()}
	if m.rng.IntN(10) == 0 && length < 5000 {
		f.Codec, payload = link.CodecRaw, length
	}
	f.Payload = make([]byte, payload)
	zero := m.rng.IntN(4) == 0
	for i := range f.Payload {
		if !zero {
			f.Payload[i] = byte(m.rng.Uint32())
		}
	}
	if f.Codec == link.CodecZstd {
		w := m.log.current
		sameWindow := w != nil && s.End < w.limit() && w.header.Timeline == s.Timeline && m.log.cursor.Stream == m.stream
		switch n := m.rng.IntN(3); {
		case n == 0 && m.stream != 0 && sameWindow:
			f.Continues, f.Stream = true, m.stream
		case n == 1:
			f.Starts = true
		}
	}
	f.Seal()
	return f
}

func (m *model) append() {
	f := m.next()
	before := m.log.State()
	err := m.log.Append(f)
	if err == nil {
		m.frames, m.cut = append(m.frames, f), nil
		if f.Starts {
			m.stream = f.Sum
		}
		return
	}
	m.cut = append(m.cut, f)
	if after := m.log.State(); after.End != before.End || after.Timeline != before.Timeline || after.Bytes != before.Bytes {
		m.t.Fatalf("state after a failed Append: %+v, before %+v", after, before)
	}
	if !errors.Is(err, errCrash) {
		m.t.Fatalf("append: %v", err)
	}
}

// burst fills several windows without a Sync.
func (m *model) burst() {
	m.whole = true
	for range 2 + m.rng.IntN(5) {
		m.append()
	}
	m.whole = false
}

func (m *model) sync() {
	count := len(m.frames)
	if err := m.log.Sync(); err == nil {
		m.confirmed = count
		if s := m.log.State(); s.Flushed != s.End {
			m.t.Fatalf("state after Sync: %+v", s)
		}
	} else if !errors.Is(err, errCrash) {
		m.t.Fatalf("sync: %v", err)
	}
}

func (m *model) retain() {
	if len(m.frames) == 0 {
		return
	}
	keep := m.frames[m.rng.IntN(len(m.frames))].Start
	m.keep = max(m.keep, keep)
	if err := m.log.Retain(keep); err != nil && !errors.Is(err, errCrash) {
		m.t.Fatalf("retain: %v", err)
	}
}

// seal seals all that is complete.
func (m *model) seal() {
	if err := sealAll(m.log); err != nil && !errors.Is(err, errCrash) {
		m.t.Fatalf("seal: %v", err)
	}
}

func (m *model) endTimeline() {
	s := m.log.State()
	if s.Timeline == 0 || len(m.frames) == 0 {
		return
	}
	last := m.frames[len(m.frames)-1]
	end := s.End
	if last.Timeline == s.Timeline && m.rng.IntN(2) == 0 && last.Start > m.keep {
		end = last.Start
	}
	f := endFrame(m.t, s.Timeline, end, s.Timeline+1+protocol.Timeline(m.rng.IntN(2)))
	err := m.log.Append(f)
	if err == nil {
		m.frames = append(m.frames, f)
		m.keep = min(m.keep, end)
	} else if !errors.Is(err, errCrash) && !errors.Is(err, ErrHistoryDiffers) { // stored before a crash, without the frame
		m.t.Fatalf("end timeline: %v", err)
	}
}

// full lets the disk be full for an Append, and then not.
func (m *model) full() {
	m.disk.Inject(func(op memfs.Op) error {
		if op.Kind == "write" || op.Kind == "create" {
			return syscall.ENOSPC
		}
		return nil
	})
	f := m.next()
	before := m.log.State()
	if err := m.log.Append(f); !errors.Is(err, ErrFull) {
		m.t.Fatalf("append to a full disk: %v", err)
	}
	if after := m.log.State(); after.End != before.End || after.Bytes != before.Bytes {
		m.t.Fatalf("state after a failed Append: %+v, before %+v", after, before)
	}
	m.disk.Inject(nil)
	if err := m.log.Append(f); err != nil {
		m.t.Fatalf("append after the disk was full: %v", err)
	}
	m.frames = append(m.frames, f)
	if f.Starts {
		m.stream = f.Sum
	}
}

// TestCrashAtEveryChange runs two fixed workloads and loses the power at each change to the disk in turn, several ways each.
func TestCrashAtEveryChange(t *testing.T) {
	t.Run("small frames", func(t *testing.T) { crashAtEveryChange(t, 3, 1) })
	t.Run("many windows between syncs", func(t *testing.T) { crashAtEveryChange(t, 11, 2) })
}

// crashAtEveryChange syncs after each syncEvery appends; one in wholeEvery fills its window, if that is not 1.
func crashAtEveryChange(t *testing.T, syncEvery, wholeEvery int) {
	variants := uint64(12)
	if testing.Short() { // the race detector's run
		variants = 2
	}
	for at := 0; ; at++ {
		m := &model{t: t, rng: rand.New(rand.NewPCG(7, 7)), disk: memfs.New()}
		m.open()
		start := m.disk.Steps()
		m.disk.Inject(func(op memfs.Op) error {
			if op.Step >= start+at {
				return errCrash
			}
			return nil
		})
		for i := range 40 {
			m.whole = wholeEvery > 1 && i%wholeEvery == 0
			m.append()
			switch {
			case i%syncEvery == syncEvery-1:
				m.sync()
			case i%13 == 12:
				m.endTimeline()
			case i%17 == 16:
				m.retain()
			case i%5 == 4:
				m.seal()
			}
		}
		finished := m.disk.Steps() <= start+at
		frames, confirmed, keep := m.frames, m.confirmed, m.keep
		for variant := range variants {
			m.frames, m.confirmed, m.keep = frames, confirmed, keep
			left := m.disk.Crash(rand.New(rand.NewPCG(uint64(at), variant)))
			c := *m
			c.disk = left
			func() {
				defer func() {
					if t.Failed() {
						fmt.Printf("%s: crash at change %d, variant %d\n", t.Name(), at, variant)
					}
				}()
				c.open()
				c.compare()
			}()
			_ = c.log.Close()
		}
		_ = m.log.Close()
		if finished {
			t.Logf("%d changes", at)
			return
		}
	}
}
