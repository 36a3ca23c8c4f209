package recompress

import (
	"bytes"
	"encoding/binary"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// TestHolder takes real WAL in chunks of random sizes: all of it comes out, in order, and what is kept back is one record at most.
func TestHolder(t *testing.T) {
	s := waltest.Named(t, "mixed")
	wal, start := s.WAL, s.Start
	random := waltest.Random(t)
	var h Holder
	for _, most := range []int{9, 300, 9000, 200_000} {
		h.Discard()
		var out []byte
		at := start
		begins := recordStarts(wal, start)
		take := func(lsn protocol.LSN, b []byte) {
			if len(b) > 0 && lsn != at {
				t.Fatalf("WAL at %s after %s", lsn, at)
			}
			out = append(out, b...)
			at += protocol.LSN(len(b))
		}
		for rest := wal; len(rest) > 0; {
			n := min(1+random.IntN(most), len(rest))
			take(h.Take(1, start+protocol.LSN(len(wal)-len(rest)), rest[:n]))
			rest = rest[n:]
			if from, n := h.Held(); n > 0 && !begins[from] {
				t.Fatalf("%d bytes held at %s, where no record begins", n, from)
			}
			if random.IntN(30) == 0 {
				_, lsn, b := h.Release()
				take(lsn, b)
			}
		}
		_, lsn, b := h.Release()
		take(lsn, b)
		if !bytes.Equal(out, wal) {
			t.Fatalf("chunks of up to %d bytes: other WAL comes out", most)
		}
	}
}

// recordStarts returns where records begin.
func recordStarts(b []byte, start protocol.LSN) map[protocol.LSN]bool {
	begins := map[protocol.LSN]bool{}
	f := follower{pos: start}
	for at := 0; at < len(b); {
		pos := f.pos
		s := f.next(b[at:])
		begins[pos] = begins[pos] || s.begins
		at += s.bytes
	}
	return begins
}

// TestHolderLimits: what is no WAL, the rest of a record whose beginning has gone, and records above MaxHeldBytes are not held.
func TestHolderLimits(t *testing.T) {
	var h Holder
	noise := bytes.Repeat([]byte{0xa5}, 100_000)
	if _, out := h.Take(1, 0x1000000, noise); !bytes.Equal(out, noise) {
		t.Errorf("%d bytes of %d that are no WAL come out", len(out), len(noise))
	}
	large := make([]byte, MaxHeldBytes+2*walPageBytes)
	for at := 0; at < len(large); at += walPageBytes {
		copy(large[at:], []byte{0x10, 0xd1, 1, 0, 1})
		binary.LittleEndian.PutUint64(large[at+8:], 0x2000000+uint64(at))
		binary.LittleEndian.PutUint32(large[at+16:], uint32(2<<20-(walPageBytes-24)*at/walPageBytes))
	}
	large[2] = 0                            // the first page continues nothing
	copy(large[24:], []byte{0, 0, 0x20, 0}) // xl_tot_len 2 MiB
	h.Discard()
	total := 0
	for at := 0; at < len(large); at += walPageBytes {
		_, out := h.Take(1, 0x2000000+protocol.LSN(at), large[at:at+walPageBytes])
		total += len(out)
		if _, n := h.Held(); n > MaxHeldBytes {
			t.Fatalf("%d bytes are held", n)
		}
	}
	if _, n := h.Held(); n != 0 || total != len(large) {
		t.Errorf("%d bytes are held of a record that is too large, %d of %d came out", n, total, len(large))
	}
}

// TestHolderPays shows what holding is for: frames of a stream cut into chunks at page boundaries.
func TestHolderPays(t *testing.T) {
	s := waltest.Named(t, "oltp")
	wal, start := s.WAL, s.Start
	var sizes [2]int
	for hold := range sizes {
		w, err := NewWriter(Options{Codec: Model})
		if err != nil {
			t.Fatal(err)
		}
		emit := func(f *link.Frame) error { sizes[hold] += len(f.Payload); return nil }
		var h Holder
		for at := 0; at < len(wal); at += walPageBytes {
			lsn, out := start+protocol.LSN(at), wal[at:min(at+walPageBytes, len(wal))]
			if hold == 1 {
				lsn, out = h.Take(1, lsn, out)
			}
			if err := w.Write(1, lsn, out, emit); err != nil {
				t.Fatal(err)
			}
		}
		tli, lsn, out := h.Release()
		if err := w.Write(tli, lsn, out, emit); len(out) > 0 && err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d bytes in frames, %d where records are held together", sizes[0], sizes[1])
	if sizes[1]*10 > sizes[0]*9 {
		t.Errorf("%d bytes in frames, %d where records are held together", sizes[0], sizes[1])
	}
}
