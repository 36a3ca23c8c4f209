package link_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// annotator writes bytes field by field: offset, bytes in hexadecimal, meaning. It is written from FORMAT.md and shares no
// code with the package, so that the golden files hold the two against each other.
type annotator struct {
	b   []byte
	at  int
	out strings.Builder
}

// field notes the next n bytes and returns them.
func (a *annotator) field(n int, meaning string, args ...any) []byte {
	b := a.b[a.at : a.at+n]
	shown := hex.EncodeToString(b)
	if n > 16 {
		shown = hex.EncodeToString(b[:8]) + ".." + fmt.Sprint(n)
	}
	fmt.Fprintf(&a.out, "%04x  %-24s  %s\n", a.at, shown, fmt.Sprintf(meaning, args...))
	a.at += n
	return b
}

func (a *annotator) u16(meaning string) { a.number(2, meaning) }

func (a *annotator) u32(meaning string) uint64 { return a.number(4, meaning) }

func (a *annotator) u64(meaning string) uint64 { return a.number(8, meaning) }

// number notes a little-endian number of n bytes.
func (a *annotator) number(n int, meaning string) uint64 {
	var wide [8]byte
	copy(wide[:], a.b[a.at:a.at+n])
	v := binary.LittleEndian.Uint64(wide[:])
	a.field(n, "%s = %d (%#x)", meaning, v, v)
	return v
}

func (a *annotator) varint(meaning string) uint64 {
	v, n := binary.Uvarint(a.b[a.at:])
	a.field(n, "%s = %d", meaning, v)
	return v
}

func (a *annotator) frame() {
	head := a.b[a.at]
	if head&0x80 != 0 {
		a.field(1, "brief: payload length %d", head&0x7f)
		units := int(a.b[a.at] & 0x7f)
		if units >= 120 {
			units = (units-120)<<8 | int(a.b[a.at+1])
			a.field(2, "brief: raw length %d, parity %d", 8*units, a.b[a.at]>>7)
		} else {
			a.field(1, "brief: raw length %d, parity %d", 8*units, a.b[a.at]>>7)
		}
		a.u16("half of the CRC-32C of the WAL")
		a.u16("CRC-16 of header and payload")
		a.field(int(head&0x7f), "payload")
		return
	}
	codec := map[byte]string{0: "raw", 1: "zstd", 15: "timeline end"}[head&15]
	a.field(1, "head: codec %d %s, starts %d, continues %d, full %d", head&15, codec, head>>4&1, head>>5&1, head>>6&1)
	if head&0x40 != 0 {
		a.field(1, "format version %d", a.b[a.at])
		a.u32("timeline")
		a.u64("start LSN")
		if head&0x20 != 0 {
			a.u32("stream")
		}
	}
	raw := a.varint("raw length")
	payload := a.varint("payload length")
	if head&0x30 == 0x30 && payload < 128 && raw < 16384 && raw%8 == 0 {
		a.u16("half of the CRC-32C of the WAL")
		a.u16("CRC-16 of header and payload")
	} else {
		a.u32("CRC-32C of the WAL")
		a.u32("CRC-32C of header and payload")
	}
	if head&15 == 15 {
		a.u32("payload: next timeline")
		a.field(int(payload)-4, "payload: history %q", a.b[a.at:a.at+int(payload)-4])
		return
	}
	a.field(int(payload), "payload")
}

func (a *annotator) window() {
	a.field(8, "magic %q", a.b[a.at:a.at+8])
	a.u16("format version")
	a.field(1, "kind %d", a.b[a.at])
	a.field(1, "zero")
	a.u32("header length")
	a.u64("system identifier")
	a.u32("timeline")
	a.u32("segment size")
	a.u32("WAL block size")
	a.u32("reset distance")
	a.u64("start LSN")
	a.u64("end LSN")
	a.u64("index offset")
	a.u32("index length")
	a.field(12, "zero")
	a.u32("CRC-32C of all before")
}

func (a *annotator) sealed() {
	offset := int(binary.LittleEndian.Uint64(a.b[56:]))
	a.window()
	for a.at < offset {
		a.frame()
	}
	for range a.u32("index: entries") {
		head := a.b[a.at+8]
		a.u32("index: start LSN, relative")
		a.u32("index: offset")
		a.field(1, "index: head: codec %d, starts %d, continues %d", head&15, head>>4&1, head>>5&1)
		a.u32("index: stream before")
	}
	a.u32("CRC-32C of header and index")
}

func (a *annotator) hello(server bool) {
	a.field(1, "type %q", a.b[a.at])
	a.u16("link version")
	if server {
		a.u64("system identifier")
		a.u32("timeline")
		a.u64("start LSN")
		a.u32("reset distance")
		return
	}
	a.u32("stream")
	a.u32("reset distance")
	a.u32("window")
}

func (a *annotator) ack() {
	a.field(1, "type %q", a.b[a.at])
	a.u64("bytes taken in")
}
