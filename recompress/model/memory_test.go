package model

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"walproxy/protocol/wal/waltest"
)

// TestLongText fills the memory of text more than once within a stream.
func TestLongText(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 15))
	var text []byte
	for len(text) < 5<<20 {
		text = fmt.Appendf(text, "row %d of %s; ", random.IntN(100000), []string{"orders", "lines", "parts"}[random.IntN(3)])
	}
	p := newPair()
	p.reset(0x1000000)
	n := 0
	for rest := text; len(rest) > 0; {
		piece := rest[:min(len(rest), 1+random.IntN(300000))]
		n += p.pass(t, piece)
		rest = rest[len(piece):]
	}
	if n > len(text)/3 {
		t.Errorf("%d bytes of text became %d", len(text), n)
	}
	if got := cap(p.enc.m.text.history); got > 2*historyBytes {
		t.Errorf("a history of %d bytes is kept", got)
	}
}

// TestMemory holds both sides to what a node may spend on a stream: 24 MiB to read, and as much again to write and verify.
func TestMemory(t *testing.T) {
	all := waltest.Samples(t)
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	p := pair{NewEncoder(MaxPredictions), NewDecoder()}
	for range 3 {
		for _, s := range all {
			p.reset(s.Start)
			p.pass(t, s.WAL)
		}
	}
	used := heap() - before
	t.Logf("encoder and decoder: %.1f MiB", float64(used)/(1<<20))
	if used > 32<<20 {
		t.Errorf("encoder and decoder take %d bytes", used)
	}
	runtime.KeepAlive(p)
}
