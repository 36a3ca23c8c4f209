package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// FuzzPageHeader: a header that parses gives its bytes again; everything else is one of the two errors.
func FuzzPageHeader(f *testing.F) {
	for _, v := range formats {
		for _, w := range corpus(f, v) {
			f.Add(w.bytes[:wal.LongHeaderBytes], uint64(w.start))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		h, n, err := wal.ParsePageHeader(b)
		var unknown *wal.VersionError
		switch {
		case errors.Is(err, wal.ErrShort):
			if len(b) >= wal.LongHeaderBytes {
				t.Fatalf("%d bytes are too few", len(b))
			}
		case errors.As(err, &unknown):
			if wal.VersionOf(unknown.Magic).Known() {
				t.Fatalf("magic %04X is known", unknown.Magic)
			}
		case err != nil:
			t.Fatal(err)
		default:
			if again := h.Append(nil); !bytes.Equal(again, b[:n]) || n != h.Bytes() {
				t.Fatalf("% x appended again is % x", b[:n], again)
			}
			var broken *wal.PageError
			if err := h.Check(protocol.LSN(addr), &wal.Stream{SegmentSize: mib}); err != nil && !errors.As(err, &broken) {
				t.Fatal(err)
			}
		}
	})
}

// FuzzDecode: a record decodes, with the checksum put right, or is a RecordError; Canonical says whether it appends again to
// its bytes, and whatever appends decodes to the same.
func FuzzDecode(f *testing.F) {
	for i, v := range formats {
		for _, w := range corpus(f, v) {
			walker := wal.NewWalker(w.start, corpusOptions)
			if err := walker.Feed(w.bytes); err != nil {
				f.Fatal(err)
			}
			n := 0
			for ev, ok := walker.Next(); ok && n < 8; ev, ok = walker.Next() {
				if ev.Kind == wal.KindRecord {
					f.Add(bytes.Clone(ev.Data), uint8(i))
					n++
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, rec []byte, version uint8) {
		v := formats[int(version)%len(formats)]
		rec = withCRC(rec, func(rec []byte) []byte { return rec })
		var r wal.Record
		err := wal.Decode(rec, wal.Format{Version: v}, &r)
		if err != nil {
			var broken *wal.RecordError
			if !errors.As(err, &broken) || broken.Offset > len(rec) {
				t.Fatal(err)
			}
			return
		}
		again := r.Append(nil, v)
		if bytes.Equal(again, rec) != r.Canonical {
			t.Fatalf("canonical %v, but % x appended again is % x", r.Canonical, rec, again)
		}
		wal.SetCRC(again)
		var second wal.Record
		if err := wal.Decode(again, wal.Format{Version: v}, &second); err != nil || !second.Canonical {
			t.Fatalf("% x, appended: %v", again, err)
		}
		equalRecords(t, v, &r, &second)
	})
}

// FuzzWalker: any bytes, from any start, come back whole, in the same events whatever the chunks are.
func FuzzWalker(f *testing.F) {
	for _, v := range formats {
		for _, w := range corpus(f, v)[:3] {
			// Pages of 1 kB take less time; the content is not in step, which is what is to be tested.
			f.Add(w.bytes[:4096], uint64(w.start), uint64(v), uint16(0))
			f.Add(w.bytes[1000:8000], uint64(w.start)+1000, uint64(v), uint16(200))
		}
	}
	b := pg15()
	b.record(heap(3000))
	b.out = b.out[:2048]
	b.pos, b.last, b.flags = b.start+2048, b.start+40, wal.OverwroteContrecord
	b.record(heap(42))
	b.record(switchRecord())
	b.zeros(b.start + 6<<10)
	f.Add(b.out, uint64(b.start), uint64(1), uint16(0))
	f.Add(b.out, uint64(b.start), uint64(2), uint16(100))
	f.Fuzz(func(t *testing.T, data []byte, start, seed uint64, maxRecord uint16) {
		if len(data) > 12<<10 {
			return
		}
		start %= 1 << 60
		o := wal.Options{Stream: wal.Stream{PageSize: 1 << 10, SegmentSize: mib}, MaxRecordBytes: int(maxRecord)}
		if seed%2 == 0 {
			o.AtRecord, o.Version = true, wal.PG15
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		cut := func(int) int { return 1 + rng.IntN(1+rng.IntN(3000)) }
		whole, joined := digest(protocol.LSN(start), o, data, whole, nil)
		inChunks, joinedChunks := digest(protocol.LSN(start), o, data, cut, nil)
		_, joinedFlushed := digest(protocol.LSN(start), o, data, cut, func() bool { return rng.IntN(2) == 0 })
		same := bytes.Equal(joined, data) && bytes.Equal(joinedChunks, data) && bytes.Equal(joinedFlushed, data)
		if whole != inChunks || !same {
			walkAll(t, protocol.LSN(start), o, data, seed) // says what is wrong, if it finds it too
			t.Fatal("events depend on the chunks or do not join to the WAL")
		}
	})
}

// digest is walk without the text: a checksum of all events, and what they join to, nil if they do not.
func digest(start protocol.LSN, o wal.Options, data []byte, cut func(int) int, flush func() bool) (uint64, []byte) {
	w, j := wal.NewWalker(start, o), wal.NewJoiner(start, int(o.PageSize))
	sum := fnv.New64a()
	joined := []byte{}
	var head []byte
	var failed error
	add := func(ev *wal.Event) {
		head = append(head[:0], byte(ev.Kind), byte(ev.Rule), byte(ev.Version), byte(ev.Timeline))
		head = binary.LittleEndian.AppendUint64(head, uint64(ev.Start))
		head = binary.LittleEndian.AppendUint64(head, uint64(ev.End))
		sum.Write(head)
		sum.Write(ev.Data)
		var err error
		if joined, err = j.Append(joined, ev); err != nil {
			failed = err
		}
	}
	for rest := data; len(rest) > 0; {
		n := min(len(rest), cut(len(rest)))
		chunk := bytes.Clone(rest[:n])
		if w.Feed(chunk) != nil {
			return 0, nil
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			add(ev)
		}
		clear(chunk)
		rest = rest[n:]
		for flush != nil && flush() {
			ev, ok := w.Flush()
			if !ok {
				break
			}
			add(ev)
		}
	}
	for ev, ok := w.Flush(); ok; ev, ok = w.Flush() {
		add(ev)
	}
	if failed != nil {
		return 0, nil
	}
	return sum.Sum64(), j.Finish(joined)
}
