package model

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// imagePair codes page images without records around them.
type imagePair struct {
	enc, dec       *model
	encRel, decRel relState
	payload        []byte
}

func newImagePair() *imagePair {
	p := &imagePair{enc: newModel(), dec: newModel()}
	p.reset()
	return p
}

func (p *imagePair) reset() {
	p.enc.reset(1, 0)
	p.dec.reset(1, 0)
	p.dec.decoding = true
	p.encRel, p.decRel = relState{index: 1, ctx: 0x1234567}, relState{index: 1, ctx: 0x1234567}
}

// pass codes the image of a page of a fork, without its hole if there is to be one, and returns its length and what it became.
func (p *imagePair) pass(tb testing.TB, page []byte, fork byte, number uint32, hole bool) (raw, coded int) {
	tb.Helper()
	k := block{fork: fork | forkImage, rel: &p.encRel, number: number, image: bytes.Clone(page)}
	lower, upper := int(at16(page, pdLower)), int(at16(page, pdUpper))
	if hole && lower >= pageHeaderBytes && lower < upper && upper <= blockBytes {
		k.holeOffset, k.holeBytes = lower, upper-lower
		k.image = slices.Concat(page[:lower], page[upper:])
		k.imageInfo = imageHole
	}
	p.enc.Encode(p.payload[:0])
	p.enc.pageImage(&k)
	p.payload = p.enc.Finish()
	back := k
	back.rel, back.image = &p.decRel, make([]byte, len(k.image))
	p.dec.Decode(p.payload)
	p.dec.pageImage(&back)
	if p.dec.err != nil {
		tb.Fatalf("decode: %v", p.dec.err)
	}
	if !bytes.Equal(back.image, k.image) {
		tb.Fatal("the image differs")
	}
	return len(k.image), len(p.payload)
}

// TestPages codes pages of every form, sound ones and damaged ones.
func TestPages(t *testing.T) {
	p := newImagePair()
	for f := range formCount {
		random := rand.New(rand.NewPCG(uint64(f), 21))
		p.reset()
		raw, coded := 0, 0
		for i := range 60 {
			page, fork := randomPage(random, f)
			hole := i%3 != 0
			if i%2 == 1 {
				damage(random, page)
			} else if got := formOf(page, fork); got != f {
				t.Fatalf("form %d is taken for %d", f, got)
			}
			before, after := p.pass(t, page, fork, uint32(i+1), hole)
			if i%2 == 0 {
				raw, coded = raw+before, coded+after
				if p.enc.more.form != f {
					t.Errorf("form %d: page %d was taken for %d", f, i, p.enc.more.form)
				}
			}
		}
		t.Logf("form %d: %d bytes became %d", f, raw, coded)
		if coded*5 > raw*4 && f != formSequence {
			t.Errorf("form %d: %d bytes became %d", f, raw, coded)
		}
	}
}

// TestManyPages mixes forms and forks of one relation.
func TestManyPages(t *testing.T) {
	p := newImagePair()
	random := rand.New(rand.NewPCG(2, 21))
	for range 400 {
		page, fork := randomPage(random, pageForm(random.IntN(int(formCount))))
		if random.IntN(2) == 0 {
			damage(random, page)
		}
		if random.IntN(20) == 0 {
			fork = byte(random.IntN(4))
		}
		p.pass(t, page, fork, random.Uint32N(1000), random.IntN(2) == 0)
	}
}

// FuzzPage codes any page between two sound ones.
func FuzzPage(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 21))
	for form := range formCount {
		page, fork := randomPage(random, form)
		f.Add(page, fork, true)
		damage(random, page)
		f.Add(page, fork, false)
	}
	before, fork := randomPage(random, formGinLeaf)
	p := newImagePair()
	f.Fuzz(func(t *testing.T, b []byte, forkOf byte, hole bool) {
		page := make([]byte, blockBytes)
		copy(page, b)
		p.reset()
		p.pass(t, before, fork, 1, true)
		p.pass(t, page, forkOf&0x0f, 1, hole)
		p.pass(t, page, forkOf&0x0f, 2, !hole)
		changeTuples(rand.New(rand.NewPCG(uint64(len(b)), 21)), page, formHash)
		p.pass(t, page, forkOf&0x0f, 1, hole)
	})
}

// TestDamagedPages decodes damaged images: no panic, no endless loop.
func TestDamagedPages(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 21))
	p := newImagePair()
	for i := range 600 {
		page, fork := randomPage(random, pageForm(i)%formCount)
		p.reset()
		p.pass(t, page, fork, 7, true)
		bad := flipped(random, p.payload)
		p.reset()
		k := block{fork: fork | forkImage, rel: &p.decRel, number: 7, image: make([]byte, blockBytes)}
		p.dec.Decode(bad[:random.IntN(len(bad)+1)])
		p.dec.pageImage(&k)
		p.dec.pageImage(&k)
	}
}

// damage changes a few bytes, most of them where they matter.
func damage(random *rand.Rand, page []byte) {
	places := []int{0, 8, pdFlags, pdLower, pdUpper, pdSpecial, pdVersion, blockBytes - 16, blockBytes - 8, blockBytes - 4}
	for range 1 + random.IntN(4) {
		at := random.IntN(len(page))
		switch random.IntN(4) {
		case 0:
			at = places[random.IntN(len(places))] + random.IntN(2)
		case 1:
			at = pageHeaderBytes + random.IntN(200)
		case 2:
			if upper := int(at16(page, pdUpper)); upper < len(page) {
				at = upper + random.IntN(len(page)-upper)
			}
		}
		switch random.IntN(3) {
		case 0:
			page[at] ^= 1 << random.IntN(8)
		case 1:
			page[at] = byte(random.Uint32())
		case 2:
			clear(page[at:min(at+random.IntN(12), len(page))])
		}
	}
}

// TestPostingList takes lists apart and puts them together, and leaves alone what no server writes.
func TestPostingList(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 21))
	var items, back [maxPostings]uint64
	var b [1 << 16]byte
	for range 300 {
		n := 1 + random.IntN(2000)
		list := randomPostings(random, items[:0], n, 1+random.Uint64N(3000))
		size := layPostings(b[:], list)
		if size == 0 {
			t.Fatalf("%d TIDs cannot be laid down", n)
		}
		got, bytes := parsePostings(b[:size], back[:])
		if got != n || bytes != size || !slices.Equal(back[:n], list) || postingCount(b[:]) != n {
			t.Fatalf("%d TIDs in %d bytes became %d in %d", n, size, got, bytes)
		}
		if n, _ := parsePostings(b[:size-1], back[:]); n != 0 {
			t.Fatal("a list that is cut short is one")
		}
		for short := range min(size, 40) {
			if layPostings(make([]byte, short), list) != 0 && short < size {
				t.Fatalf("%d bytes fit in %d", size, short)
			}
		}
	}
	bad := map[string][]byte{
		"item 0":         {0, 0, 0, 1, 0, 0, 0, 0},
		"item too large": {0, 0, 0, 1, 0, 8, 0, 0},
		"long form":      {0, 0, 0, 1, 1, 0, 2, 0, 0x81, 0},
		"no end":         {0, 0, 0, 1, 1, 0, 2, 0, 0x81, 0x81},
		"padding":        {0, 0, 0, 1, 1, 0, 1, 0, 1, 9},
		"distance 0":     {0, 0, 0, 1, 1, 0, 1, 0, 0, 0},
	}
	for name, b := range bad {
		if n, _ := parsePostings(b, back[:]); n != 0 {
			t.Errorf("%s: a list of %d", name, n)
		}
	}
}

// flipped returns b with one to three bytes changed.
func flipped(random *rand.Rand, b []byte) []byte {
	bad := bytes.Clone(b)
	for range 1 + random.IntN(3) {
		bad[random.IntN(len(bad))] ^= byte(1 + random.IntN(255))
	}
	return bad
}
