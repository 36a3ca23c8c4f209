// Package datapage lays out the pages of tables and indexes so that a general compressor finds more in less time: line pointers as
// distances, tuples of one length by columns. Every layout has its exact inverse, whatever the bytes are. It is pure.
//
// Source: PostgreSQL src/include/storage/bufpage.h, PageHeaderData; itemid.h, ItemIdData (13-18).
package datapage

import (
	"encoding/binary"
	"slices"
)

// Facts of pages.
const (
	HeaderBytes    = 24
	LowerOffset    = 12 // of pd_lower in the header; pd_upper and pd_special follow
	SpecialOffset  = 16
	versionOffset  = 18
	pointerBytes   = 4 // of a line pointer: 15 bits offset, 2 flags, 15 length
	offsetMask     = 1<<15 - 1
	lengthShift    = 17
	alignment      = 8
	MaxWidth       = 254 * alignment // of columns
	fewestPointers = 4               // that say something about the width
)

var le = binary.LittleEndian

// Width returns the length, aligned to 8, of most tuples that the line pointers show; 0 if they differ.
func Width(pointers []byte) int {
	n := len(pointers) / pointerBytes
	if n < fewestPointers {
		return 0
	}
	align := func(at int) int {
		return int(le.Uint32(pointers[at*pointerBytes:])>>lengthShift+alignment-1) &^ (alignment - 1)
	}
	width, same := align(n/2), 0
	for i := range n {
		if align(i) == width {
			same++
		}
	}
	if width == 0 || width > MaxWidth || same*8 < n*7 {
		return 0
	}
	return width
}

// AppendDistances appends line pointers to dst with each offset replaced by its distance from where the tuple would lie directly
// below the one before.
func AppendDistances(dst, pointers []byte) []byte { return move(dst, pointers, false) }

// AppendPointers undoes AppendDistances.
func AppendPointers(dst, distances []byte) []byte { return move(dst, distances, true) }

func move(dst, b []byte, back bool) []byte {
	from := len(dst)
	dst = append(dst, b[:len(b)/pointerBytes*pointerBytes]...)
	expected := uint32(0)
	for b := dst[from:]; len(b) >= pointerBytes; b = b[pointerBytes:] {
		v := le.Uint32(b)
		length := (v>>lengthShift + alignment - 1) &^ (alignment - 1)
		if length == 0 { // unused, dead, or a redirection
			continue
		}
		offset := v & offsetMask
		expected -= length
		moved := offset - expected
		if back {
			moved = offset + expected
			offset = moved & offsetMask
		}
		le.PutUint32(b, v&^offsetMask|moved&offsetMask)
		expected = offset
	}
	return dst
}

// AppendColumns appends b, rows of width bytes, by columns; what does not fill a row follows as it is. A width of 0 changes nothing.
func AppendColumns(dst, b []byte, width int) []byte {
	if width == 0 || len(b) < 2*width {
		return append(dst, b...)
	}
	rows, from := len(b)/width, len(dst)
	dst = slices.Grow(dst, len(b))[:from+len(b)]
	turn(dst[from:], b, rows, width)
	copy(dst[from+rows*width:], b[rows*width:])
	return dst
}

// AppendRows undoes AppendColumns: it appends as many bytes as b has.
func AppendRows(dst, b []byte, width int) []byte {
	if width == 0 || len(b) < 2*width {
		return append(dst, b...)
	}
	rows, from := len(b)/width, len(dst)
	dst = slices.Grow(dst, len(b))[:from+len(b)]
	turn(dst[from:], b, width, rows)
	copy(dst[from+rows*width:], b[rows*width:])
	return dst
}
