package corpus

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
)

// Inputs returns count inputs of 1 to most bytes, the same ones for the same arguments on every machine: pieces of the corpus's contents,
// noise, small alphabets, runs, skewed bytes, equally frequent bytes, copies at all distances, and counters. They reach what pages of a
// server seldom do: stored blocks, single symbols, ties, long matches, the ends of every table.
func Inputs(images []Image, seed uint64, count, most int) iter.Seq[[]byte] {
	g := generator{rand.New(rand.NewPCG(seed, 1)), most}
	var contents []byte
	for _, i := range images {
		contents = append(contents, i.Raw...)
	}
	shapes := []func(n int) []byte{
		func(n int) []byte {
			at := g.IntN(len(contents) - n)
			return contents[at : at+n : at+n]
		},
		g.noise, g.alphabet, g.runs, g.skewed, g.ties, g.copies, g.counters,
	}
	return func(yield func([]byte) bool) {
		for i := range count {
			if !yield(shapes[i%len(shapes)](g.size())) {
				return
			}
		}
	}
}

type generator struct {
	*rand.Rand
	most int
}

// size prefers short inputs: most limits of the formats are there.
func (g *generator) size() int {
	return 1 + g.IntN([]int{300, 2000, g.most, g.most}[g.IntN(4)])
}

func (g *generator) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g *generator) alphabet(n int) []byte {
	b, symbols := make([]byte, n), 1+g.IntN(40)
	for i := range b {
		b[i] = byte(g.IntN(symbols))
	}
	return b
}

func (g *generator) runs(n int) []byte {
	var b []byte
	for len(b) < n {
		c := byte(g.IntN(8)) * 32
		for range 1 + g.IntN(300) {
			b = append(b, c)
		}
	}
	return b[:n]
}

// skewed falls off geometrically, which makes deep Huffman trees.
func (g *generator) skewed(n int) []byte {
	b, keep := make([]byte, n), 2+g.IntN(30)
	for i := range b {
		v := 0
		for g.IntN(keep) != 0 && v < 255 {
			v++
		}
		b[i] = byte(v * 7)
	}
	return b
}

// ties makes many bytes equally frequent, or nearly so.
func (g *generator) ties(n int) []byte {
	symbols := 9 + g.IntN(60)
	each := 1 + n/symbols
	if g.IntN(2) == 0 {
		each = 150 + g.IntN(40)
		symbols = min(symbols, g.most/each)
	}
	var b []byte
	for s := range symbols {
		more := 0
		if g.IntN(3) == 0 {
			more = g.IntN(8)
		}
		for range each + more {
			b = append(b, byte(s*3))
		}
	}
	g.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	return b[:max(1, min(len(b), g.most))]
}

func (g *generator) copies(n int) []byte {
	var b []byte
	for len(b) < n {
		if len(b) > 10 && g.IntN(3) > 0 {
			offset := 1 + g.IntN(len(b))
			for range 3 + g.IntN(60) {
				b = append(b, b[len(b)-offset])
			}
			continue
		}
		b = append(b, g.noise(1+g.IntN(30))...)
	}
	return b[:n]
}

func (g *generator) counters(n int) []byte {
	var b []byte
	for v := g.Uint32(); len(b) < n; v += g.Uint32N(3) {
		b = binary.LittleEndian.AppendUint32(b, v)
		if g.IntN(4) == 0 {
			b = append(b, "abcdef"...)
		}
	}
	return b[:n]
}
