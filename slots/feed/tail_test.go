package feed

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"walproxy/protocol"
)

func TestTailHoldsTheNewestBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	const size = 1 << 12
	tl := newTail(size)
	tl.join()
	base := protocol.LSN(0x3000123)
	var all []byte
	for range 400 {
		chunk := make([]byte, 1+rnd.IntN(size+size/2))
		for i := range chunk {
			chunk[i] = byte(rnd.Uint32())
		}
		tl.push(7, base+protocol.LSN(len(all)), chunk)
		all = append(all, chunk...)
		from := max(0, len(all)-size)
		at := from + rnd.IntN(len(all)-from+1)
		limit := rnd.IntN(2 * size)
		got, ok := tl.read(nil, 7, base+protocol.LSN(at), limit)
		want := all[at:min(len(all), at+limit)]
		if !ok || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes at %d of %d: ok %v, equal %v", limit, at, len(all), ok, bytes.Equal(got, want))
		}
		if from > 0 {
			if _, ok := tl.read(nil, 7, base+protocol.LSN(from-1), 1); ok {
				t.Fatalf("byte %d should have been pushed out of %d", from-1, len(all))
			}
		}
	}
	if _, ok := tl.read(nil, 8, tl.end, 1); ok {
		t.Fatal("another timeline is not held")
	}
	tl.push(8, base+5, []byte{1, 2})
	if got, ok := tl.read(nil, 8, base+5, 10); !ok || !bytes.Equal(got, []byte{1, 2}) {
		t.Fatalf("after a switch of timelines: %v %v", got, ok)
	}
}

// Without readers the tail is no more than a position; one that comes then finds its place and what follows.
func TestTailWithoutReaders(t *testing.T) {
	tl := newTail(1 << 12)
	tl.push(1, 100, []byte("before"))
	if tli, end := tl.position(); tli != 1 || end != 106 {
		t.Fatalf("position %s on timeline %d", end, tli)
	}
	if _, ok := tl.read(nil, 1, 105, 1); ok {
		t.Fatal("what nobody could have read is held")
	}
	tl.join()
	if _, ok := tl.read(nil, 1, 106, 1); !ok || tl.after(1, 106) == nil {
		t.Fatal("the end is not held")
	}
	tl.push(1, 106, []byte("behind"))
	if got, ok := tl.read(nil, 1, 106, 10); !ok || string(got) != "behind" {
		t.Fatalf("behind the end: %q, %v", got, ok)
	}
	tl.leave()
	tl.push(1, 112, []byte("x"))
	if _, ok := tl.read(nil, 1, 106, 1); ok {
		t.Fatal("held for nobody")
	}
}
