package rangecoder

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// program runs a sequence of coding steps that seed determines; values are drawn when encoding and must come back when decoding.
func program(t *testing.T, c *Coder, seed uint64, steps int) {
	t.Helper()
	values := rand.New(rand.NewPCG(seed, 1))
	kinds := rand.New(rand.NewPCG(seed, 2))
	pass := func(v uint64) uint64 { // a decoder must not be told the value
		if c.Decoding() {
			return 0
		}
		return v
	}
	for i := range steps {
		want, got := uint64(0), uint64(0)
		switch kinds.IntN(10) {
		case 0:
			want = uint64(values.IntN(2))
			got = uint64(c.Bit(0, 3, int(pass(want))))
		case 1: // nearly certain
			if values.IntN(1000) == 0 {
				want = 1
			}
			got = uint64(c.Bit(1, 0, int(pass(want))))
		case 2:
			want = uint64(values.IntN(16))
			got = uint64(c.Nibble(2, int(pass(want))))
		case 3:
			n := 1 + kinds.IntN(64)
			want = values.Uint64() >> (64 - n)
			got = c.Direct(n, pass(want))
		case 4:
			want = values.Uint64() >> values.IntN(64)
			got = c.Uint(4, pass(want))
		case 5:
			want = uint64(int64(values.Uint64()) >> values.IntN(64))
			got = uint64(c.Int(5, int64(pass(want))))
		case 7:
			n := 1 + kinds.Uint32N(1<<28)
			want = uint64(values.Uint32N(n))
			got = uint64(c.Uniform(n, uint32(pass(want))))
		case 8:
			want = values.Uint64() >> (10 + values.IntN(54))
			got = c.Near(7, 20, pass(want))
		case 9:
			n := kinds.IntN(9)
			var b [8]byte
			want = values.Uint64() >> (64 - 8*n)
			binary.LittleEndian.PutUint64(b[:], pass(want))
			c.Bytes(b[:n])
			got = binary.LittleEndian.Uint64(b[:])
		case 6:
			want = uint64(values.IntN(3) * 85)
			got = uint64(c.Byte(6, byte(pass(want))))
		}
		if got != want {
			t.Fatalf("seed %d step %d: got %d, want %d", seed, i, got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		enc, dec := New(), New()
		enc.Predict(1 + int(seed%MaxPredictions))
		dec.Predict(1 + int(seed%MaxPredictions))
		var frames [][]byte
		for frame := range uint64(4) {
			enc.Encode([]byte("head"))
			program(t, &enc, seed*4+frame, int(seed*seed%700)*int(frame&1+1)/2)
			b := enc.Finish()
			if string(b[:4]) != "head" {
				t.Fatalf("seed %d: bytes in front of the frame were changed", seed)
			}
			frames = append(frames, b[4:])
		}
		for frame, b := range frames {
			dec.Decode(b)
			program(t, &dec, seed*4+uint64(frame), int(seed*seed%700)*int(frame&1+1)/2)
			if dec.Overrun() {
				t.Fatalf("seed %d: overrun on a good frame", seed)
			}
		}
	}
}

// TestFinish shows that ending a frame costs less than 0.45 bytes more than not ending it.
func TestFinish(t *testing.T) {
	const frames, bitsPerFrame = 20000, 37
	random := rand.New(rand.NewPCG(7, 7))
	c := New()
	var buf []byte
	for range frames {
		c.Encode(buf)
		c.Direct(bitsPerFrame, random.Uint64()&(1<<bitsPerFrame-1))
		buf = c.Finish()
	}
	if cost := float64(len(buf))/frames - float64(bitsPerFrame)/8; cost > 0.45 {
		t.Errorf("a flush costs %.3f bytes", cost)
	}
}

func TestCertainBitsAreCheap(t *testing.T) {
	for predictions, most := range [MaxPredictions]int{8, 16, 16, 16} {
		c := New()
		c.Predict(1 + predictions)
		c.Encode(nil)
		const n = 100000
		for range n {
			c.Bit(0, 0, 1)
		}
		if size := len(c.Finish()); size > most {
			t.Errorf("%d predictions: %d certain bits take %d bytes", 1+predictions, n, size)
		}
	}
}

func TestCarry(t *testing.T) {
	c := New()
	c.Encode([]byte{9})
	c.low, c.width = fullRange-10, fullRange // the carry must run through bytes of 255
	c.buf = append(c.buf, 7, 255, 255)
	c.direct(1, 1)
	if got := c.buf[:4]; got[0] != 9 || got[1] != 8 || got[2] != 0 || got[3] != 0 {
		t.Errorf("carry gave % x", got)
	}
}

// TestPeriods: what repeats with a period is learnt by all predictions but the first.
func TestPeriods(t *testing.T) {
	var sizes [MaxPredictions]int
	for predictions := range MaxPredictions {
		c := New()
		c.Predict(1 + predictions)
		c.Encode(nil)
		for i := range 7000 {
			c.Flag(0, 0, i%7 == 0)
		}
		sizes[predictions] = len(c.Finish())
		if predictions > 0 && sizes[predictions] > sizes[0]/5 {
			t.Errorf("%d predictions: %d bytes, %d with one", 1+predictions, sizes[predictions], sizes[0])
		}
	}
	t.Logf("%d bytes", sizes)
}

// TestLogit holds the tables against the functions that they stand for.
func TestLogit(t *testing.T) {
	for k := range squash {
		want := 65536 / (1 + math.Exp(-float64(k-maxLogit)/logitOne))
		if got := float64(squash[k]); math.Abs(got-min(max(want, 1), 65535)) > 1 {
			t.Fatalf("squash %d is %.0f, want %.2f", k-maxLogit, got, want)
		}
	}
	for i := range stretch {
		p := (float64(i) + 0.5) / (1 << stretchLog)
		if want := math.Log(p/(1-p)) * logitOne; math.Abs(float64(stretch[i])-want) > 2 {
			t.Fatalf("stretch of %.5f is %d, want %.2f", p, stretch[i], want)
		}
	}
}

// FuzzDecode feeds arbitrary bytes to every primitive: whatever comes back must be in range and nothing may panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte("a frame of no meaning whatsoever, but long enough"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		c := New()
		c.Predict(1 + len(payload)%MaxPredictions)
		c.Decode(payload)
		for i := range 200 {
			if bit := c.Bit(9, 0, 0); bit != 0 && bit != 1 {
				t.Fatalf("bit %d", bit)
			}
			if v := c.Nibble(uint32(i), 0); v < 0 || v > 15 {
				t.Fatalf("nibble %d", v)
			}
			if v := c.Direct(5, 0); v > 31 {
				t.Fatalf("direct %d", v)
			}
			if v := c.Uniform(77, 0); v > 76 {
				t.Fatalf("uniform %d", v)
			}
			c.Uint(uint32(i), 0)
			c.Near(uint32(i), i%64, 0)
		}
	})
}

func BenchmarkBit(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 3))
	bits := make([]int, 4096)
	for i := range bits {
		if random.IntN(10) == 0 {
			bits[i] = 1
		}
	}
	c := New()
	buf := make([]byte, 0, 1<<20)
	b.Run("encode", func(b *testing.B) {
		c.Encode(buf)
		for i := range b.N {
			if len(c.buf) > 1<<19 {
				c.Encode(buf)
			}
			c.Bit(uint32(i&3), i>>2, bits[i&4095])
		}
	})
	c.Encode(buf)
	for i := range 1 << 20 {
		c.Bit(uint32(i&3), i>>2, bits[i&4095])
	}
	frame := c.Finish()
	b.Run("decode", func(b *testing.B) {
		for i := range b.N {
			if i&(1<<20-1) == 0 {
				c.Decode(frame)
			}
			c.Bit(uint32(i&3), i>>2, 0)
		}
	})
}
