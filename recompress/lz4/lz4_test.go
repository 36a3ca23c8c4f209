package lz4

import (
	"bytes"
	"fmt"
	"testing"
)

func text(n int) (b []byte) {
	for len(b) < n {
		b = fmt.Appendf(b, "tuple %d;", len(b)*7919%10007)
	}
	return b[:n]
}

func TestRoundTrip(t *testing.T) {
	for _, level := range []int{1, 3, 5, 10, 16} {
		e, err := NewEncoder(level)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 12, 13, 100, 70_000, 1 << 20} {
			src := text(n)
			payload, err := e.Append([]byte("kept"), src)
			if err != nil || len(payload) > 4+n || n > 10_000 && len(payload) > n/2 {
				t.Fatalf("level %d: %d bytes became %d, %v", level, n, len(payload)-4, err)
			}
			got, err := Decoder{}.Append([]byte("kept"), payload[4:], n)
			if err != nil || !bytes.Equal(got[4:], src) {
				t.Fatalf("level %d: %d bytes came back as %d, %v", level, n, len(got)-4, err)
			}
		}
	}
	if _, err := NewEncoder(2); err == nil {
		t.Error("level 2 was taken")
	}
}

func FuzzDecode(f *testing.F) {
	e, err := NewEncoder(3)
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{20, 3000} {
		payload, err := e.Append(nil, text(n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(payload, uint32(n))
	}
	f.Add([]byte{0xff, 0xff}, uint32(1<<31))
	f.Fuzz(func(t *testing.T, payload []byte, n uint32) {
		out, err := Decoder{}.Append([]byte("kept"), payload, int(n))
		if err != nil && len(out) != 4 || err == nil && len(out) != 4+int(n) || cap(out) > 4096+260*len(payload)*2 {
			t.Fatalf("%d bytes of capacity %d from %d, want %d, %v", len(out)-4, cap(out), len(payload), n, err)
		}
	})
}
