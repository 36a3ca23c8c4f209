package model

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPagesAgain: a page whose image was there before, with some tuples gone, some new and some in the place of others, takes little.
func TestPagesAgain(t *testing.T) {
	p := newImagePair()
	for f := range formCount {
		if !f.comesAgain() {
			continue
		}
		random := rand.New(rand.NewPCG(uint64(f), 22))
		p.reset()
		first, later := 0, 0
		for i := range 20 {
			page, fork := randomPage(random, f)
			_, coded := p.pass(t, page, fork, uint32(i+1), true)
			first += coded
			for range 4 {
				changeTuples(random, page, f)
				_, coded := p.pass(t, page, fork, uint32(i+1), random.IntN(3) > 0)
				later += coded
			}
		}
		t.Logf("form %d: %d bytes at first, %d for each image that follows", f, first, later/4)
		if later > first*2 { // of four images each
			t.Errorf("form %d: %d bytes at first, %d for each image that follows", f, first, later/4)
		}
	}
}

// TestDamageAgain decodes damaged images of pages that were there before: no panic, no endless loop.
func TestDamageAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 22))
	p := newImagePair()
	for i := range 400 {
		page, fork := randomPage(random, []pageForm{formHash, formGist, formSPGist, formBrin}[i%4])
		p.reset()
		p.pass(t, page, fork, 7, true)
		earlier := bytes.Clone(p.payload)
		changeTuples(random, page, formHash)
		p.pass(t, page, fork, 7, true)
		bad := flipped(random, p.payload)
		p.reset()
		k := block{fork: fork | forkImage, rel: &p.decRel, number: 7, image: make([]byte, blockBytes)}
		for _, payload := range [][]byte{earlier, bad[:random.IntN(len(bad)+1)]} {
			p.dec.Decode(payload)
			p.dec.pageImage(&k)
		}
	}
}

// TestRowsAgain: rows of a heap page that were there before take next to nothing.
func TestRowsAgain(t *testing.T) {
	p := newImagePair()
	random := rand.New(rand.NewPCG(7, 22))
	page := make([]byte, blockBytes)
	le.PutUint16(page[pdSpecial:], blockBytes)
	le.PutUint16(page[pdVersion:], blockBytes|4)
	fill(random, page, 40, func() []byte {
		b := make([]byte, 24+120)
		for i := 24; i < len(b); i++ {
			b[i] = byte(random.Uint32())
		}
		b[tupleHoff] = 24
		return b
	})
	_, first := p.pass(t, page, 0, 3, true)
	offset, _, _ := linePointer(le.Uint32(page[pageHeaderBytes:]))
	page[offset+100]++
	_, again := p.pass(t, page, 0, 3, true)
	if first < 2000 || again*4 > first {
		t.Errorf("%d bytes at first, %d again", first, again)
	}
}

// changeTuples takes tuples away from a page, changes some and puts new ones between them.
func changeTuples(random *rand.Rand, page []byte, f pageForm) {
	var tuples [][]byte
	for i := range (min(int(at16(page, pdLower)), blockBytes) - pageHeaderBytes) / 4 {
		if b, _ := pageTuple(page, i); b != nil {
			tuples = append(tuples, bytes.Clone(b))
		}
	}
	for range 1 + random.IntN(3) {
		if len(tuples) == 0 {
			break
		}
		at := random.IntN(len(tuples))
		switch random.IntN(3) {
		case 0:
			tuples = slices.Delete(tuples, at, at+1)
		case 1:
			tuples[at][random.IntN(len(tuples[at]))]++
		default:
			tuples = slices.Insert(tuples, at, bytes.Clone(tuples[at]))
			tuples[at][0]++
		}
	}
	upper := blockBytes - f.special()
	clear(page[pageHeaderBytes:upper])
	lower := pageHeaderBytes
	for _, b := range tuples {
		if upper-(len(b)+7)&^7 < lower+4 {
			break
		}
		upper -= (len(b) + 7) &^ 7
		copy(page[upper:], b)
		le.PutUint32(page[lower:], uint32(upper)|itemNormal<<15|uint32(len(b))<<17)
		lower += 4
	}
	le.PutUint16(page[pdLower:], uint16(lower))
	le.PutUint16(page[pdUpper:], uint16(upper))
}
