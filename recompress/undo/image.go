package undo

// Facts of pages. Source: PostgreSQL src/include/storage/bufpage.h, PageHeaderData; itemid.h, ItemIdData (13-18).
const (
	pageHeader  = 24
	lowerOffset = 12
	pointer     = 4 // bytes of a line pointer: 15 bits offset, 2 flags, 15 length
	offsetMask  = 1<<15 - 1
	lengthShift = 17
)

// Forms of a page image, the first byte of its head. From imageColumns on it is the width of the columns in units of 8 bytes.
const (
	imagePlain   = iota // all of it as it is
	imageColumns        // line pointers apart, tuples by columns; imageColumns itself: tuples as they are
)

const maxWidth = 254 * 8

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
	special := min(max(blockBytes-int(le.Uint16(b[16:])), 0), len(b)-lower) // pd_special
	width := columnWidth(b[pageHeader:lower])
	e.put(secHeads, byte(imageColumns+width/8))
	e.put(secHeads, b[:pageHeader]...)
	heads := e.section(secHeads)
	*heads = movePointers(*heads, b[pageHeader:lower], false)
	tuples := e.section(secTuples)
	*tuples = transpose(*tuples, b[lower:len(b)-special], width)
	*tuples = append(*tuples, b[len(b)-special:]...)
}

// imageLower returns where the line pointers of an image that is not compressed end, 0 if it does not look like a page with some.
// Both sides compute it: of b it reads the page header only.
func imageLower(b []byte, k *part) int {
	if k.image < pageHeader {
		return 0
	}
	lower := int(le.Uint16(b[lowerOffset:]))
	if k.hole != 0 && k.hole != lower || lower <= pageHeader || lower > k.image || (lower-pageHeader)%pointer != 0 {
		return 0
	}
	return lower
}

// columnWidth returns the length, aligned, of most tuples that the line pointers in b show; 0 if they differ.
func columnWidth(b []byte) int {
	n := len(b) / pointer
	if n < 4 {
		return 0
	}
	align := func(at int) int { return int(le.Uint32(b[at*pointer:])>>lengthShift+7) &^ 7 }
	width, same := align(n/2), 0
	for i := range n {
		if align(i) == width {
			same++
		}
	}
	if width == 0 || width > maxWidth || same*8 < n*7 {
		return 0
	}
	return width
}

// movePointers appends line pointers to dst with each offset replaced by its distance from where the tuple would lie directly
// below the one before; back undoes it.
func movePointers(dst, b []byte, back bool) []byte {
	expected := uint32(0)
	for ; len(b) >= pointer; b = b[pointer:] {
		v := le.Uint32(b)
		length := (v>>lengthShift + 7) &^ 7
		if length == 0 { // unused, dead, or a redirection
			dst = le.AppendUint32(dst, v)
			continue
		}
		offset := v & offsetMask
		expected -= length
		if back {
			offset = (offset + expected) & offsetMask
			v = v&^offsetMask | offset
			dst = le.AppendUint32(dst, v)
		} else {
			dst = le.AppendUint32(dst, v&^offsetMask|(offset-expected)&offsetMask)
		}
		expected = offset
	}
	return dst
}

// transpose appends b, rows of width bytes, by columns; what does not fill a row follows as it is. A width of 0 changes nothing.
func transpose(dst, b []byte, width int) []byte {
	if width == 0 || len(b) < 2*width {
		return append(dst, b...)
	}
	rows := len(b) / width
	for c := range width {
		for at := c; at < rows*width; at += width {
			dst = append(dst, b[at])
		}
	}
	return append(dst, b[rows*width:]...)
}

// restore undoes transpose: it appends as many bytes as b has.
func restore(dst, b []byte, width int) []byte {
	if width == 0 || len(b) < 2*width {
		return append(dst, b...)
	}
	rows := len(b) / width
	from := len(dst)
	dst = append(dst, b...)
	out := dst[from:]
	for c := range width {
		column := b[c*rows:][:rows]
		at := c
		for _, v := range column {
			out[at] = v
			at += width
		}
	}
	return dst
}
