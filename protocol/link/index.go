package link

import (
	"fmt"
	"sort"

	"walproxy/protocol"
)

// Limits of a sealed window. A decoder refuses more before it allocates.
const (
	// MaxWindowBytes bounds the file of a sealed window: offsets in its index have 4 bytes.
	MaxWindowBytes = 1<<32 - 1
	// MaxIndexEntries bounds the entries of an index; see room.
	MaxIndexEntries = MaxResetDistance/indexSpacing + indexSlack + 2
	// MaxIndexBytes bounds an encoded index.
	MaxIndexBytes = indexFixedBytes + MaxIndexEntries*indexEntryBytes

	indexEntryBytes = 4 + 4 + 1 + 4
	indexFixedBytes = 4 + 4 // number of entries, checksum
	minIndexBytes   = indexFixedBytes + indexEntryBytes

	// indexSlack entries, and one more for each indexSpacing bytes of WAL, are what an index may have.
	indexSlack   = 256
	indexSpacing = 1 << 10
	// continuedSpacing is how much WAL lies between two entries at least if the second one's frame continues a stream.
	continuedSpacing = 256 << 10
)

// IndexEntry says where a frame of a sealed window lies.
type IndexEntry struct {
	Start     protocol.LSN // of the frame
	Offset    int64        // of the frame in the file
	Codec     Codec
	Starts    bool
	Continues bool
	Stream    uint32 // identity of the stream met last before the frame, 0 if none
}

// Enterable reports whether the frame can be decoded without the ones before it.
func (e IndexEntry) Enterable() bool { return !e.Continues }

// Index is the decoded index of a sealed window. It refers to the bytes that it was decoded from. Safe for concurrent use.
type Index struct {
	header  WindowHeader
	entries []byte
}

// DecodeIndex reads the index of the window with the header h; b is all of it, as h.IndexOffset and h.IndexBytes say. It keeps
// a slice of b.
//
// Errors: ErrShort if b is too short; *VersionError for a codec or flag that is not known; *CorruptError.
func DecodeIndex(h WindowHeader, b []byte) (Index, error) {
	bad := func(lsn protocol.LSN, format string, args ...any) error {
		return &CorruptError{Timeline: h.Timeline, LSN: lsn, What: "window index: " + fmt.Sprintf(format, args...)}
	}
	if h.Kind != WindowSealed {
		return Index{}, bad(h.Start, "the window is not sealed")
	}
	if uint64(len(b)) < uint64(h.IndexBytes) {
		return Index{}, ErrShort
	}
	b = b[:h.IndexBytes]
	if len(b) < minIndexBytes || len(b) > MaxIndexBytes || uint64(le.Uint32(b))*indexEntryBytes != uint64(len(b)-indexFixedBytes) {
		return Index{}, bad(h.Start, "%d bytes do not fit its entries", len(b))
	}
	if body := b[:len(b)-4]; le.Uint32(b[len(body):]) != indexChecksum(h, body) {
		return Index{}, bad(h.Start, "checksum")
	}
	x := Index{header: h, entries: b[4 : len(b)-4]}
	before := IndexEntry{}
	for i := range x.Len() {
		e, err := x.checked(i, before)
		if err != nil {
			return Index{}, err
		}
		if e == (IndexEntry{}) {
			return Index{}, bad(x.At(i).Start, "entry %d of %d breaks a rule", i+1, x.Len())
		}
		before = e
	}
	return x, nil
}

// checked returns entry i if it keeps the rules behind the entry before, the zero one if it does not.
func (x Index) checked(i int, before IndexEntry) (IndexEntry, error) {
	head := x.entries[i*indexEntryBytes+8]
	e := x.At(i)
	switch {
	case head&(flagBrief|flagFull) != 0:
		return e, &VersionError{What: "frame flag", Got: int(head)}
	case e.Codec != CodecTimelineEnd && e.Codec > CodecModel:
		return e, &VersionError{What: "codec", Got: int(e.Codec)}
	}
	room := uint64(x.header.ResetDistance) - uint64(x.header.Start)&uint64(x.header.ResetDistance-1)
	isEnd := e.Codec == CodecTimelineEnd
	good := e.Offset < int64(x.header.IndexOffset) && e.Offset > before.Offset && !(e.Starts && e.Continues)
	switch {
	case i == 0:
		good = good && e.Offset == WindowHeaderBytes && !e.Continues && e.Stream == 0 && (isEnd || e.Start == x.header.Start)
	case !isEnd:
		good = good && e.Start > before.Start
	}
	if isEnd {
		good = good && le.Uint32(x.entries[i*indexEntryBytes:]) == 0 && i == x.Len()-1 && !e.Starts && !e.Continues
	} else {
		good = good && uint64(e.Start-x.header.Start) < room && (i < x.Len()-1 || x.header.End >= x.header.Start)
	}
	if !good {
		return IndexEntry{}, nil
	}
	return e, nil
}

// indexChecksum covers the header too: an index does not check behind another window. The header's own checksum is left out,
// since the sum of bytes with their sum behind them is the same for all.
func indexChecksum(h WindowHeader, body []byte) uint32 {
	b := h.Append(make([]byte, 0, WindowHeaderBytes+len(body)))
	return Checksum(append(b[:WindowHeaderBytes-4], body...))
}

// Len returns the number of entries, 1 or more. They are ascending, by offset and by LSN; only the end of a timeline, which is
// the last entry if the window holds one, may lie below entries before it, and below the window.
func (x Index) Len() int { return len(x.entries) / indexEntryBytes }

// At returns entry i.
func (x Index) At(i int) IndexEntry {
	b := x.entries[i*indexEntryBytes:]
	e := IndexEntry{
		Start: x.header.Start + protocol.LSN(le.Uint32(b)), Offset: int64(le.Uint32(b[4:])),
		Codec: Codec(b[8] & codecMask), Starts: b[8]&flagStarts != 0, Continues: b[8]&flagContinues != 0, Stream: le.Uint32(b[9:]),
	}
	if e.Codec == CodecTimelineEnd {
		e.Start = x.header.End
	}
	return e
}

// Cursor returns the cursor that decodes the frame of entry i and those behind it.
func (x Index) Cursor(i int) Cursor {
	e := x.At(i)
	c := Cursor{Timeline: x.header.Timeline, Next: e.Start, Stream: e.Stream, ResetDistance: x.header.ResetDistance}
	if e.Continues {
		c.Codec = e.Codec // if the frame before was of another, the header says so in full
	}
	return c
}

// Enter returns the last entry at or below lsn whose frame can be decoded without the ones before it; the first entry if there
// is none. The end of a timeline is such an entry only if it is the only one.
func (x Index) Enter(lsn protocol.LSN) int {
	i := x.above(lsn) - 1
	for i > 0 && !x.At(i).Enterable() {
		i--
	}
	return max(i, 0)
}

// Behind returns the offset where what is needed to read the byte at lsn, or less, ends: that of the first entry above lsn, or
// of the index.
func (x Index) Behind(lsn protocol.LSN) int64 {
	if i := x.above(lsn); i < x.Len() {
		return x.At(i).Offset
	}
	return int64(x.header.IndexOffset)
}

// above returns the first entry above lsn, the end of a timeline counting as above everything.
func (x Index) above(lsn protocol.LSN) int {
	n := x.Len()
	if x.At(n-1).Codec == CodecTimelineEnd {
		n--
	}
	return sort.Search(n, func(i int) bool { return x.At(i).Start > lsn })
}

// Ends reports whether the window ends its timeline, and the entry of the frame that says so.
func (x Index) Ends() (IndexEntry, bool) {
	e := x.At(x.Len() - 1)
	return e, e.Codec == CodecTimelineEnd
}
