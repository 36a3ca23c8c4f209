package undo

import "walproxy/protocol/datapage"

const (
	pageHeader = datapage.HeaderBytes
	pointer    = 4 // bytes of a line pointer
)

// Forms of a page image, the first byte of its head. From imageColumns on it is the width of the columns in units of 8 bytes.
const (
	imagePlain   = iota // all of it as it is
	imageColumns        // line pointers apart, tuples by columns; imageColumns itself: tuples as they are
)

// image tells a page image.
func (e *Encoder) image(b []byte, k *part) {
	lower := 0
	if k.plain {
		lower = imageLower(b, k)
	}
	if lower == 0 {
		e.put(secHeads, imagePlain)
		e.put(secTuples, b...)
		return
	}
	special := min(max(blockBytes-int(le.Uint16(b[datapage.SpecialOffset:])), 0), len(b)-lower) // pd_special
	width := datapage.Width(b[pageHeader:lower])
	e.put(secHeads, byte(imageColumns+width/8))
	e.put(secHeads, b[:pageHeader]...)
	heads := e.section(secHeads)
	*heads = datapage.AppendDistances(*heads, b[pageHeader:lower])
	tuples := e.section(secTuples)
	*tuples = datapage.AppendColumns(*tuples, b[lower:len(b)-special], width)
	*tuples = append(*tuples, b[len(b)-special:]...)
}

// imageLower returns where the line pointers of an image that is not compressed end, 0 if it does not look like a page with some.
// Both sides compute it: of b it reads the page header only.
func imageLower(b []byte, k *part) int {
	if k.image < pageHeader {
		return 0
	}
	lower := int(le.Uint16(b[datapage.LowerOffset:]))
	if k.hole != 0 && k.hole != lower || lower <= pageHeader || lower > k.image || (lower-pageHeader)%pointer != 0 {
		return 0
	}
	return lower
}
