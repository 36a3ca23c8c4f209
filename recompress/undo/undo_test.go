package undo

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal/waltest"
)

// pair is the two ends of a stream.
type pair struct {
	enc    *Encoder
	dec    *Decoder
	undone []byte
	out    []byte
}

func newPair(start protocol.LSN) *pair {
	p := &pair{enc: NewEncoder(), dec: NewDecoder()}
	p.reset(start)
	return p
}

func (p *pair) reset(start protocol.LSN) {
	p.enc.Reset(1, start)
	p.dec.Reset(1, start)
}

// pass undoes a piece, puts it back, compares, and returns how long the undone form is.
func (p *pair) pass(tb testing.TB, piece []byte) int {
	tb.Helper()
	p.undone = p.enc.Append(p.undone[:0], piece)
	if len(p.undone) > MaxBytes(len(piece)) {
		tb.Fatalf("%d bytes became %d, more than MaxBytes says", len(piece), len(p.undone))
	}
	var err error
	if p.out, err = p.dec.Append(p.out[:0], p.undone, len(piece)); err != nil || !bytes.Equal(p.out, piece) {
		tb.Fatalf("a piece of %d bytes came back changed: %v", len(piece), err)
	}
	return len(p.undone)
}

func TestRoundTrip(t *testing.T) {
	r := waltest.Random(t)
	for _, s := range waltest.Samples(t) {
		p := newPair(s.Start)
		if n := p.pass(t, s.WAL); n >= len(s.WAL) {
			t.Errorf("%s: %d bytes became %d", s.Name, len(s.WAL), n)
		}
		for _, largest := range []int{40, 3000, 60_000} {
			from := r.IntN(20_000)
			p.reset(s.Start + protocol.LSN(from))
			for wal := s.WAL[from:]; len(wal) > 0; {
				n := min(1+r.IntN(largest), len(wal))
				p.pass(t, wal[:n])
				wal = wal[n:]
			}
		}
	}
}

// damage changes records and makes their checksums right again, so that what is no valid record reaches the parser.
func damage(r *rand.Rand, wal []byte) {
	for page := 0; page+walPageBytes <= len(wal); page += walPageBytes {
		b := wal[page : page+walPageBytes]
		at := shortHeader
		if le.Uint16(b[2:])&infoContinue != 0 {
			at += int(le.Uint32(b[16:])+7) &^ 7
		}
		for at >= 0 && at+recordHeader <= len(b) {
			size := int(le.Uint32(b[at:]))
			if size < recordHeader || at+size > len(b) {
				break
			}
			rec := b[at : at+size]
			for range r.IntN(3) {
				rec[4+r.IntN(size-4)] = byte(r.IntN(256) * r.IntN(2))
			}
			rec[18], rec[19] = 0, 0
			sum := crc32.Update(0, castagnoli, rec[recordHeader:])
			le.PutUint32(rec[20:], crc32.Update(sum, castagnoli, rec[:20]))
			at += (size + 7) &^ 7
		}
	}
}

func TestNearlyValidWAL(t *testing.T) {
	r := waltest.Random(t)
	for _, s := range waltest.Samples(t) {
		for round := range 6 {
			wal := bytes.Clone(s.WAL)
			damage(r, wal)
			for range 20 * (round % 2) {
				wal[r.IntN(len(wal))] ^= 1 << r.IntN(8)
			}
			p := newPair(s.Start)
			n := r.IntN(len(wal))
			p.pass(t, wal[:n])
			p.pass(t, wal[n:])
		}
	}
}

// Every bit of an undone form flipped, and every shorter one: an error or as many bytes as were asked for.
func TestDamagedInput(t *testing.T) {
	for _, s := range waltest.Samples(t) {
		p := newPair(s.Start)
		for _, piece := range [][]byte{s.WAL[:700], s.WAL[:20_000]} {
			p.enc.Reset(1, s.Start)
			undone := p.enc.Append(nil, piece)
			step := 1 + len(undone)*8/700
			for bit := 0; bit < len(undone)*8; bit += step {
				bad := bytes.Clone(undone)
				bad[bit/8] ^= 1 << (bit % 8)
				p.dec.Reset(1, s.Start)
				if out, err := p.dec.Append([]byte("kept"), bad, len(piece)); err == nil && len(out) != 4+len(piece) || err != nil && len(out) != 4 {
					t.Fatalf("%s, bit %d: %d bytes, %v", s.Name, bit, len(out), err)
				}
			}
			for n := 0; n < len(undone); n += step {
				p.dec.Reset(1, s.Start)
				if _, err := p.dec.Append(nil, undone[:n], len(piece)); err == nil {
					t.Fatalf("%s: cut to %d of %d bytes and nothing said", s.Name, n, len(undone))
				}
				if _, err := p.dec.Append(nil, undone, len(piece)); err == nil {
					t.Fatalf("%s: the stream went on after an error", s.Name)
				}
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for _, s := range waltest.Samples(t) {
		p := newPair(s.Start)
		p.pass(t, s.WAL)
		if n := testing.AllocsPerRun(3, func() {
			p.reset(s.Start)
			p.pass(t, s.WAL)
		}); n > 0 {
			t.Errorf("%s: %v allocations for a stream", s.Name, n)
		}
	}
}

func TestDistanceOfXid(t *testing.T) {
	r := waltest.Random(t)
	interesting := []uint32{0, 1, 1 << 31, 1<<31 - 1, 1<<31 + 1, 1<<32 - 1}
	for range 1000 {
		interesting = append(interesting[:6], r.Uint32(), r.Uint32())
		for _, last := range interesting {
			p := place{xid: last}
			for _, xid := range append(interesting, last+1<<31, -last) {
				if got := p.atDistance(p.distance(xid)); got != xid {
					t.Fatalf("behind %d, %d became %d", last, xid, got)
				}
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	enc := NewEncoder()
	for _, s := range waltest.Samples(f) {
		for _, n := range []int{900, 24_000} {
			enc.Reset(1, s.Start)
			f.Add(enc.Append(nil, s.WAL[:n]), uint64(s.Start), uint32(n))
		}
	}
	dec := NewDecoder()
	f.Fuzz(func(t *testing.T, undone []byte, start uint64, rawBytes uint32) {
		rawBytes %= 1 << 18
		dec.Reset(1, protocol.LSN(start))
		out, err := dec.Append(nil, undone, int(rawBytes))
		if err == nil && len(out) != int(rawBytes) || err != nil && len(out) != 0 {
			t.Fatalf("%d bytes, want %d, error %v", len(out), rawBytes, err)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range waltest.Samples(f) {
		f.Add(s.WAL[:24_000], uint64(s.Start), uint16(10_000), uint64(0))
		f.Add(s.WAL[:24_000], uint64(s.Start), uint16(300), uint64(7))
	}
	p := newPair(0)
	f.Fuzz(func(t *testing.T, wal []byte, start uint64, cut uint16, seed uint64) {
		if wal = bytes.Clone(wal); seed != 0 {
			damage(rand.New(rand.NewPCG(seed, 0)), wal)
		}
		p.reset(protocol.LSN(start))
		n := min(int(cut), len(wal))
		p.pass(t, wal[:n])
		p.pass(t, wal[n:])
	})
}
