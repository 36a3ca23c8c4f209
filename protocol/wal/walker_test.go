package wal_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

const mib = 1 << 20

// TestWalkerFindsEveryRecord: records of all sizes in all versions, with 1 to 64 kB pages and SWITCHes, any chunks.
func TestWalkerFindsEveryRecord(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for version := wal.PG13; version <= wal.PG18; version++ {
		for _, pageSize := range []uint64{1 << 10, 4 << 10, 8 << 10, 64 << 10} {
			b := newBuilder(version, pageSize, mib, 4*mib-256<<10)
			type found struct {
				start, end protocol.LSN
				rec        []byte
			}
			var want []found
			for b.pos < 5*mib-700000 {
				r := randomRecord(rng, version)
				if rng.IntN(300) == 0 {
					r = switchRecord()
				}
				start, end, rec := b.record(r)
				want = append(want, found{start, end, rec})
				if r.Class() == wal.ClassSwitch {
					b.zeros((b.pos - 1).Next(b.segment))
				}
			}
			o := b.options()
			l := walkAll(t, b.start, o, b.out, rng.Uint64())
			w := wal.NewWalker(b.start, o)
			if err := w.Feed(b.out); err != nil {
				t.Fatal(err)
			}
			pages := 0
			for ev, ok := w.Next(); ok; ev, ok = w.Next() {
				switch ev.Kind {
				case wal.KindPage:
					pages++
				case wal.KindSwitchTail:
				case wal.KindRecord:
					if len(want) == 0 || ev.Start != want[0].start || ev.End != want[0].end || !bytes.Equal(ev.Data, want[0].rec) {
						t.Fatalf("seed %d, %s: record %s-%s was not written so", seed, version, ev.Start, ev.End)
					}
					if ev.Version != version || ev.Timeline != 1 {
						t.Fatalf("record at %s of %s, timeline %d", ev.Start, ev.Version, ev.Timeline)
					}
					want = want[1:]
				default:
					t.Fatalf("seed %d, %s: %s at %s: %s", seed, version, ev.Kind, ev.Start, ev.Rule)
				}
			}
			if len(want) > 0 || pages != b.pages || l.held != 0 {
				t.Errorf("seed %d, %s: %d records missing; %d pages, want %d; %d bytes held", seed, version, len(want), pages, b.pages, l.held)
			}
		}
	}
}

// TestWalkerStartsAnywhere: from every position of some WAL all bytes come back, and the records from the next page on.
func TestWalkerStartsAnywhere(t *testing.T) {
	b := newBuilder(wal.PG16, 1<<10, mib, mib-4<<10)
	var starts []protocol.LSN
	for range 15 {
		start, _, _ := b.record(simple(wal.RmgrHeap, 0, 300))
		starts = append(starts, start)
	}
	b.record(simple(wal.RmgrHeap, 0, 3000))
	for offset := range b.out {
		start := b.start + protocol.LSN(offset)
		l := walk(t, start, b.options(), b.out[offset:], whole, nil)
		if !bytes.Equal(l.joined, b.out[offset:]) {
			t.Fatalf("from %s: not the same bytes:\n%s", start, l)
		}
		if offset%131 == 0 {
			walkAll(t, start, b.options(), b.out[offset:], uint64(offset))
		}
		seen := map[protocol.LSN]bool{}
		w := wal.NewWalker(start, b.options())
		if err := w.Feed(b.out[offset:]); err != nil {
			t.Fatal(err)
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			if ev.Kind == wal.KindRecord {
				seen[ev.Start] = true
			}
		}
		from := start
		if uint64(from)%1024 != 0 {
			from = from.Next(1024)
		}
		for _, lsn := range starts {
			if lsn >= from != seen[lsn] {
				t.Fatalf("from %s: record at %s seen: %v", start, lsn, seen[lsn])
			}
		}
	}
}

// TestWalkerAtRecord: with the promise that a record starts there, none is lost.
func TestWalkerAtRecord(t *testing.T) {
	b := newBuilder(wal.PG17, 8<<10, mib, mib)
	b.record(simple(wal.RmgrHeap, 0, 100))
	start, _, _ := b.record(simple(wal.RmgrHeap, 0, 9000))
	b.record(simple(wal.RmgrHeap, 0, 100))
	o := b.options()
	o.AtRecord, o.Version = true, wal.PG17
	check(t, walkAll(t, start, o, b.out[start-b.start:], 0), `
		page 0/102000-0/102018 24 tli 1
		record 0/100090-0/1023D0 9000
		record 0/1023D0-0/102438 100`)
}

func TestWalkerRefuses(t *testing.T) {
	w := wal.NewWalker(0, wal.Options{})
	if err := w.Feed([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Feed([]byte{2}); !errors.Is(err, wal.ErrUndrained) {
		t.Errorf("fed twice: %v", err)
	}
	for _, start := range []protocol.LSN{wal.MaxLSN, ^protocol.LSN(0)} {
		if err := wal.NewWalker(start, wal.Options{}).Feed([]byte{1}); !errors.Is(err, wal.ErrPosition) {
			t.Errorf("fed at %s: %v", start, err)
		}
	}
}

// TestWalkerHeld: what is held back at the end of a chunk begins where the events end, and is bounded, whatever a record says of its length.
func TestWalkerHeld(t *testing.T) {
	b := newBuilder(wal.PG15, 1<<10, mib, mib)
	b.record(simple(wal.RmgrHeap, 0, 100))
	b.record(simple(wal.RmgrHeap, 0, 2000))
	second := b.last
	b.record(simple(wal.RmgrHeap, 0, 30000))
	third := b.last
	o := b.options()
	o.MaxRecordBytes = 2500
	w := wal.NewWalker(b.start, o)
	events := b.start // where they end
	for i := range b.out {
		if err := w.Feed(b.out[i : i+1]); err != nil {
			t.Fatal(err)
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			if ev.Kind != wal.KindPage || ev.Start == events {
				events = ev.End
			}
		}
		if w.HeldStart() != events || w.Position() != b.start+protocol.LSN(i+1) {
			t.Fatalf("at %s: events end at %s, what is held starts at %s", w.Position(), events, w.HeldStart())
		}
		if held, limit := w.Held(), o.MaxRecordBytes+wal.LongHeaderBytes; held > limit || w.HeldStart() != w.Position() && held == 0 {
			t.Fatalf("at %s: %d bytes are held, limit %d", w.Position(), held, limit)
		}
		if pos := w.Position(); pos > second && pos < third && w.HeldStart() != second {
			t.Fatalf("at %s: held from %s, not from the record at %s", pos, w.HeldStart(), second)
		}
	}
}

// TestWalkerAllocates: nothing, once the buffers have grown.
func TestWalkerAllocates(t *testing.T) {
	b := newBuilder(wal.PG15, 8<<10, 16*mib, 16*mib)
	for range 200 {
		b.record(simple(wal.RmgrHeap, 0, 10000))
		b.record(simple(wal.RmgrHeap, 0, 64))
	}
	w := wal.NewWalker(b.start, b.options())
	var rec wal.Record
	round := func() {
		w.Reset(b.start)
		for rest := b.out; len(rest) > 0; {
			n := min(len(rest), 7777)
			if err := w.Feed(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			for ev, ok := w.Next(); ok; ev, ok = w.Next() {
				if ev.Kind != wal.KindRecord {
					continue
				}
				if err := wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &rec); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	round()
	if n := testing.AllocsPerRun(5, round); n != 0 {
		t.Errorf("%v allocations per run, want 0", n)
	}
}
