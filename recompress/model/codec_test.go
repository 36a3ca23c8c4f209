package model

import (
	"bytes"
	"flag"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal/waltest"
)

// pair is the two ends of a stream.
type pair struct {
	enc *Encoder
	dec *Decoder
}

func newPair() pair { return pair{NewEncoder(1), NewDecoder()} }

func (p pair) reset(start protocol.LSN) {
	p.enc.Reset(1, start)
	p.dec.Reset(1, start)
}

// pass codes a piece, decodes it again and returns the payload's length.
func (p pair) pass(tb testing.TB, piece []byte) int {
	tb.Helper()
	before := crc32.ChecksumIEEE(piece)
	payload := p.enc.Append([]byte("x"), piece)
	if crc32.ChecksumIEEE(piece) != before {
		tb.Fatal("the encoder changed the WAL")
	}
	out, err := p.dec.Decode([]byte("head"), payload[1:], len(piece))
	if err != nil {
		tb.Fatalf("decode %d bytes: %v", len(piece), err)
	}
	if string(out[:4]) != "head" || !bytes.Equal(out[4:], piece) {
		tb.Fatalf("a piece of %d bytes differs", len(piece))
	}
	return len(payload) - 1
}

// split passes wal in random pieces.
func (p pair) split(tb testing.TB, start protocol.LSN, wal []byte, random *rand.Rand, most int) {
	tb.Helper()
	p.reset(start)
	for len(wal) > 0 {
		n := min(1+random.IntN(most), len(wal))
		p.pass(tb, wal[:n])
		wal = wal[n:]
	}
}

func TestSamples(t *testing.T) {
	p := newPair()
	for _, s := range waltest.Samples(t) {
		p.reset(s.Start)
		n := p.pass(t, s.WAL)
		t.Logf("%-18s %6d -> %6d", s.Name, len(s.WAL), n)
		if n*3 > len(s.WAL)*2 {
			t.Errorf("%s: %d bytes became %d", s.Name, len(s.WAL), n)
		}
	}
}

func TestRandomSplits(t *testing.T) {
	p := newPair()
	for _, s := range waltest.Samples(t) {
		for seed := range uint64(6) {
			random := rand.New(rand.NewPCG(seed, 11))
			most := []int{3, 40, 500, 5000, 20000, 60000}[seed]
			wal := s.WAL
			if most < 100 {
				wal = wal[:16384]
			}
			skip := random.IntN(9000) // streams begin anywhere
			t.Logf("%s seed %d skip %d", s.Name, seed, skip)
			p.split(t, s.Start+protocol.LSN(skip), wal[skip:], random, most)
		}
	}
}

// mutate changes bytes of whole records and makes their checksums good again, so that odd records reach the model. Without
// random it only does the latter.
func mutate(wal []byte, random *rand.Rand) {
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
			r := b[at : at+size]
			for n := 0; random != nil && n < int(r[20]%3); n++ {
				at := 4 + random.IntN(size-4)
				switch random.IntN(4) {
				case 0:
					r[at] ^= 1 << random.IntN(8)
				case 1:
					r[at] = 255
				case 2:
					r[at] = 0
				case 3:
					r[at] = byte(random.Uint32())
				}
			}
			r[18], r[19] = 0, 0
			sum := crc32.Update(0, castagnoli, r[recordHeader:])
			le.PutUint32(r[20:], crc32.Update(sum, castagnoli, r[:20]))
			at += (size + 7) &^ 7
		}
	}
}

func TestNearlyValidWAL(t *testing.T) {
	p := newPair()
	for _, s := range waltest.Samples(t) {
		for seed := range uint64(8) {
			random := rand.New(rand.NewPCG(seed, 12))
			wal := bytes.Clone(s.WAL)
			mutate(wal, random)
			if seed%2 == 1 {
				for range 20 { // and damage that the checksums show
					wal[random.IntN(len(wal))] ^= 1 << random.IntN(8)
				}
			}
			t.Logf("%s seed %d", s.Name, seed)
			p.split(t, s.Start, wal, random, 30000)
		}
	}
}

// TestVersions has the model take WAL for that of other majors: it must code anything it misreads.
func TestVersions(t *testing.T) {
	p := newPair()
	for _, magic := range []uint16{0xD106, 0xD10D, 0xD113, 0xD116, 0xD118, 0xD119, 0x1234} {
		for _, s := range waltest.Samples(t) {
			wal := bytes.Clone(s.WAL)
			for page := 0; page < len(wal); page += walPageBytes {
				le.PutUint16(wal[page:], magic)
			}
			p.reset(s.Start)
			p.pass(t, wal)
		}
	}
}

func TestNotWAL(t *testing.T) {
	p := newPair()
	random := rand.New(rand.NewPCG(1, 13))
	noise := make([]byte, 300000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	zeros := make([]byte, 1<<20)
	tail := append(append([]byte{}, waltest.Samples(t)[0].WAL[:20000]...), zeros...)
	for name, wal := range map[string][]byte{"noise": noise, "zeros": zeros, "tail": tail} {
		for _, start := range []protocol.LSN{0, 0x1000000, 0x1000123} {
			p.reset(start)
			n := p.pass(t, wal)
			if limit := len(wal) + len(wal)/1000; n > limit {
				t.Errorf("%s: %d bytes became %d", name, len(wal), n)
			}
			if name == "zeros" && n > 200 {
				t.Errorf("zeros: %d bytes became %d", len(wal), n)
			}
		}
	}
}

// TestPredictions passes all samples with each number of predictions through one decoder, and in random pieces. More predictions make
// the whole of them smaller.
func TestPredictions(t *testing.T) {
	random := rand.New(rand.NewPCG(16, 16))
	dec := NewDecoder()
	last := 0
	for n := 1; n <= MaxPredictions; n++ {
		p := pair{NewEncoder(n), dec}
		all := 0
		for _, s := range waltest.Samples(t) {
			p.reset(s.Start)
			all += p.pass(t, s.WAL)
			p.split(t, s.Start, s.WAL, random, 20000)
		}
		t.Logf("%d predictions: %d bytes", n, all)
		if n > 1 && all >= last {
			t.Errorf("%d bytes with %d predictions, %d with one less", all, n, last)
		}
		last = all
	}
}

// TestSameBytes shows that what an encoder did before a reset leaves no trace.
func TestSameBytes(t *testing.T) {
	all := waltest.Samples(t)
	used := NewEncoder(1)
	for i, s := range all {
		used.m.predictions = 1 + i%MaxPredictions
		fresh := NewEncoder(used.m.predictions)
		fresh.Reset(1, s.Start)
		used.Reset(1, s.Start)
		if !bytes.Equal(fresh.Append(nil, s.WAL), used.Append(nil, s.WAL)) {
			t.Fatalf("%s: an encoder used for %d samples gives other bytes than a fresh one", s.Name, i)
		}
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	p := newPair()
	all := waltest.Samples(t)
	var payload, out []byte
	round := func() {
		for _, s := range all {
			p.reset(s.Start)
			payload = p.enc.Append(payload[:0], s.WAL)
			var err error
			if out, err = p.dec.Decode(out[:0], payload, len(s.WAL)); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	round()
	// What is left is the keys of the kinds that a stream meets, one string each.
	if n := testing.AllocsPerRun(3, round); n > 600 {
		t.Errorf("%.0f allocations for %d streams", n, len(all))
	}
}

// TestDamagedPayloads decodes payloads with changed bits, cut short or run into each other.
func TestDamagedPayloads(t *testing.T) {
	enc, dec := NewEncoder(1), NewDecoder()
	rounds := 60
	if *damageFlag > 0 {
		rounds = *damageFlag
	}
	for i, s := range waltest.Samples(t) {
		enc.m.predictions = 1 + i%MaxPredictions
		enc.Reset(1, s.Start)
		good := enc.Append(nil, s.WAL)
		random := rand.New(rand.NewPCG(uint64(len(good)), 14))
		for range rounds {
			bad := flipped(random, good)
			if random.IntN(3) == 0 {
				bad = bad[:random.IntN(len(bad))]
			}
			dec.Reset(1, s.Start)
			out, err := dec.Decode(nil, bad, len(s.WAL))
			if err == nil && len(out) != len(s.WAL) {
				t.Fatalf("%s: %d bytes, want %d", s.Name, len(out), len(s.WAL))
			}
			if err != nil {
				if _, again := dec.Decode(nil, good, len(s.WAL)); again == nil {
					t.Fatalf("%s: a stream goes on after %v", s.Name, err)
				}
			}
		}
	}
}

var damageFlag = flag.Int("damage", 0, "rounds of TestDamagedPayloads per sample")
