package match_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"walproxy/recompress/image/internal/match"
)

const seed = 5

// TestLen compares with the definition, on bytes that often match, at every kind of end.
func TestLen(t *testing.T) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		src := make([]byte, 2+r.IntN(60))
		for i := range src {
			src[i] = byte(r.IntN(5) / 4)
		}
		b := 1 + r.IntN(len(src)-1)
		a, end := r.IntN(b), r.IntN(len(src)+1)
		want := 0
		for b+want < end && src[a+want] == src[b+want] {
			want++
		}
		if got := match.Len(src, a, b, end); got != want {
			t.Fatalf("seed %d: Len(%v, %d, %d, %d) = %d, want %d", seed, src, a, b, end, got, want)
		}
	}
}

// TestCopy compares with a copy byte by byte. What lies before the run stays, and so does what lies behind the slice.
func TestCopy(t *testing.T) {
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		whole := make([]byte, 2+r.IntN(120))
		for i := range whole {
			whole[i] = byte(r.Uint32())
		}
		size := 2 + r.IntN(len(whole)-1)
		at := 1 + r.IntN(size-1)
		offset, length := 1+r.IntN(at), 1+r.IntN(size-at)
		want := bytes.Clone(whole)
		for i := range length {
			want[at+i] = want[at+i-offset]
		}
		got := bytes.Clone(whole)
		match.Copy(got[:size], at, offset, length)
		if !bytes.Equal(got[:at+length], want[:at+length]) || !bytes.Equal(got[size:], want[size:]) {
			t.Fatalf("seed %d: Copy(size %d, %d, %d, %d) = %v, want %v", seed, size, at, offset, length, got, want)
		}
	}
}
