package link_test

import (
	"math/rand/v2"
	"testing"

	"walproxy/protocol/link"
)

func TestCombineSums(t *testing.T) {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	for _, n := range []int{0, 1, 2, 7, 8, 255, 4096, 65537, 1 << 20} {
		for _, at := range []int{0, 1, n / 3, n} {
			if at > n {
				continue
			}
			if got, want := link.CombineSums(link.Checksum(b[:at]), link.Checksum(b[at:n]), uint64(n-at)), link.Checksum(b[:n]); got != want {
				t.Errorf("%d and %d bytes: %08x, want %08x", at, n-at, got, want)
			}
		}
	}
}

// A raw frame sealed in one pass is the frame that two passes make, and its payload can be judged by the sums alone.
func TestSealRaw(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		wal := make([]byte, 1+random.IntN(5000))
		for i := range wal {
			wal[i] = byte(random.Uint32())
		}
		f := link.Frame{Timeline: 3, Start: link.MinResetDistance * 7, RawLen: uint32(len(wal)), Payload: wal}
		want := f
		want.RawSum = link.Checksum(wal)
		want.Seal()
		f.SealRaw()
		if f.Sum != want.Sum || f.RawSum != want.RawSum || !f.CarriesWAL() {
			t.Fatalf("%d bytes: %08x and %08x, want %08x and %08x", len(wal), f.RawSum, f.Sum, want.RawSum, want.Sum)
		}
		other := f
		other.RawSum ^= 1 << random.IntN(32)
		other.Seal() // right but for what it says of the WAL
		stale := f
		stale.Start += 8
		if other.CarriesWAL() || stale.CarriesWAL() {
			t.Fatalf("%d bytes: a frame with other WAL, or that is not sealed, passes", len(wal))
		}
	}
}
