package rangecoder

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// program runs a sequence of coding steps that seed determines; values are drawn when encoding and must come back when decoding.
func program(t *testing.T, c *Coder, table *Table, seed uint64, steps int) {
	t.Helper()
	values := rand.New(rand.NewPCG(seed, 1))
	kinds := rand.New(rand.NewPCG(seed, 2))
	var probs [8]Prob
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
			got = uint64(c.Bit(&probs[0], int(pass(want))))
		case 1: // nearly certain
			if values.IntN(1000) == 0 {
				want = 1
			}
			got = uint64(c.Bit(&probs[1], int(pass(want))))
		case 2:
			want = uint64(values.IntN(16))
			got = uint64(c.Nibble(table.Group(2), int(pass(want))))
		case 3:
			n := 1 + kinds.IntN(64)
			want = values.Uint64() >> (64 - n)
			got = c.Direct(n, pass(want))
		case 4:
			want = values.Uint64() >> values.IntN(64)
			got = c.Uint(table, 4, pass(want))
		case 5:
			want = uint64(int64(values.Uint64()) >> values.IntN(64))
			got = uint64(c.Int(table, 5, int64(pass(want))))
		case 7:
			n := 1 + kinds.Uint32N(1<<28)
			want = uint64(values.Uint32N(n))
			got = uint64(c.Uniform(n, uint32(pass(want))))
		case 8:
			want = values.Uint64() >> (10 + values.IntN(54))
			got = c.Near(table, 7, 20, pass(want))
		case 9:
			n := kinds.IntN(9)
			var b [8]byte
			want = values.Uint64() >> (64 - 8*n)
			binary.LittleEndian.PutUint64(b[:], pass(want))
			c.Bytes(b[:n])
			got = binary.LittleEndian.Uint64(b[:])
		case 6:
			want = uint64(values.IntN(3) * 85)
			got = uint64(c.Byte(table, 6, byte(pass(want))))
		}
		if got != want {
			t.Fatalf("seed %d step %d: got %d, want %d", seed, i, got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		enc, dec := new(Table), new(Table)
		var c Coder
		var frames [][]byte
		for frame := range uint64(4) {
			c.Encode([]byte("head"))
			program(t, &c, enc, seed*4+frame, int(seed*seed%700)*int(frame&1+1)/2)
			b := c.Finish()
			if string(b[:4]) != "head" {
				t.Fatalf("seed %d: bytes in front of the frame were changed", seed)
			}
			frames = append(frames, b[4:])
		}
		for frame, b := range frames {
			c.Decode(b)
			program(t, &c, dec, seed*4+uint64(frame), int(seed*seed%700)*int(frame&1+1)/2)
			if c.Overrun() {
				t.Fatalf("seed %d: overrun on a good frame", seed)
			}
		}
	}
}

// TestFinish shows that ending a frame costs less than 0.45 bytes more than not ending it.
func TestFinish(t *testing.T) {
	const frames, bitsPerFrame = 20000, 37
	random := rand.New(rand.NewPCG(7, 7))
	var c Coder
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
	var c Coder
	var p Prob
	c.Encode(nil)
	const n = 100000
	for range n {
		c.Bit(&p, 1)
	}
	if size := len(c.Finish()); size > 8 {
		t.Errorf("%d certain bits take %d bytes", n, size)
	}
}

func TestCarry(t *testing.T) {
	var c Coder
	c.Encode([]byte{9})
	c.low, c.width = fullRange-10, fullRange // the carry must run through bytes of 255
	c.buf = append(c.buf, 7, 255, 255)
	c.direct(1, 1)
	if got := c.buf[:4]; got[0] != 9 || got[1] != 8 || got[2] != 0 || got[3] != 0 {
		t.Errorf("carry gave % x", got)
	}
}

// FuzzDecode feeds arbitrary bytes to every primitive: whatever comes back must be in range and nothing may panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Add([]byte("a frame of no meaning whatsoever, but long enough"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		table := new(Table)
		var c Coder
		var p Prob
		c.Decode(payload)
		for i := range 200 {
			if bit := c.Bit(&p, 0); bit != 0 && bit != 1 {
				t.Fatalf("bit %d", bit)
			}
			if v := c.Nibble(table.Group(uint32(i)), 0); v < 0 || v > 15 {
				t.Fatalf("nibble %d", v)
			}
			if v := c.Direct(5, 0); v > 31 {
				t.Fatalf("direct %d", v)
			}
			if v := c.Uniform(77, 0); v > 76 {
				t.Fatalf("uniform %d", v)
			}
			c.Uint(table, uint32(i), 0)
			c.Near(table, uint32(i), i%64, 0)
		}
	})
}

func BenchmarkBit(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 3))
	var probs [64]Prob
	bits := make([]int, 4096)
	for i := range bits {
		if random.IntN(10) == 0 {
			bits[i] = 1
		}
	}
	var c Coder
	buf := make([]byte, 0, 1<<20)
	b.Run("encode", func(b *testing.B) {
		c.Encode(buf)
		for i := range b.N {
			if len(c.buf) > 1<<19 {
				c.Encode(buf)
			}
			c.Bit(&probs[i&63], bits[i&4095])
		}
	})
	c.Encode(buf)
	for i := range 1 << 20 {
		c.Bit(&probs[i&63], bits[i&4095])
	}
	frame := c.Finish()
	b.Run("decode", func(b *testing.B) {
		for i := range b.N {
			if i&(1<<20-1) == 0 {
				c.Decode(frame)
			}
			c.Bit(&probs[i&63], 0)
		}
	})
}
