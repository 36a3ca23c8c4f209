package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// The file <data>/flushed remembers how far the newest window was durable when Sync returned last. It is written after each
// fsync, and synced itself only when it names another window than before, at most once in markerInterval: after the death of the
// process it is exact, after a loss of power it may be old, but it is never ahead. Recovery takes damage below it for damage,
// whatever it looks like.
//
//	offset 0   8  magic "WALPROXF"
//	       8   4  format version, little-endian as all of it
//	      12   4  timeline
//	      16   8  LSN of the window's first byte
//	      24   8  bytes of the window file that are durable
//	      32   4  CRC-32C of the above
const (
	markerMagic   = "WALPROXF"
	markerVersion = 1
	markerBytes   = 36

	markerInterval = time.Second
)

type marker struct {
	timeline protocol.Timeline
	start    protocol.LSN
	size     int64
}

func (m marker) append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, markerMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, markerVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.timeline))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(m.size))
	return binary.LittleEndian.AppendUint32(dst, link.Checksum(dst[from:]))
}

// decodeMarker returns the zero marker, which says nothing, for what is not a whole marker of this version.
func decodeMarker(b []byte) marker {
	if len(b) != markerBytes || string(b[:8]) != markerMagic || binary.LittleEndian.Uint32(b[8:]) != markerVersion ||
		binary.LittleEndian.Uint32(b[32:]) != link.Checksum(b[:32]) {
		return marker{}
	}
	m := marker{
		timeline: protocol.Timeline(binary.LittleEndian.Uint32(b[12:])), start: protocol.LSN(binary.LittleEndian.Uint64(b[16:])),
		size: int64(binary.LittleEndian.Uint64(b[24:])),
	}
	if m.size < 0 {
		return marker{}
	}
	return m
}

// openMarker opens the file and reads what the last process left in it.
func (l *Log) openMarker() error {
	name := path.Join(l.dir, "flushed")
	file, err := l.fs.OpenWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = l.fs.Create(name)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	l.markerFile = file
	buf := make([]byte, markerBytes+1)
	n, err := file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	l.marker = decodeMarker(buf[:n])
	return nil
}

// writeMarker remembers that size bytes of w, and all before it, are durable. A failure is harmless: an older marker is true as
// well.
func (l *Log) writeMarker(w *window, size int64) {
	m := marker{timeline: w.header.Timeline, start: w.header.Start, size: size}
	l.markerBuf = m.append(l.markerBuf[:0])
	_, err := l.markerFile.WriteAt(l.markerBuf, 0)
	if err == nil && (m.timeline != l.marked.timeline || m.start != l.marked.start) && time.Since(l.markedAt) >= markerInterval {
		err = l.markerFile.Sync()
		l.marked, l.markedAt = m, time.Now()
	}
	if err != nil {
		l.logger.Debug("remember the durable length", errField(err))
	}
}

// confirmed returns how many bytes of w are known to have been durable, if it is the window that the marker names; else 0.
func (l *Log) confirmed(w *window) int64 {
	if l.marker.timeline == w.header.Timeline && l.marker.start == w.header.Start {
		return l.marker.size
	}
	return 0
}

// aheadOf reports whether a window behind w was durable.
func (m marker) aheadOf(w *window) bool {
	return m.timeline > w.header.Timeline || m.timeline == w.header.Timeline && m.start > w.header.Start
}

func (l *Log) missingWindow() error {
	return &CorruptError{File: windowPath(l.root, l.marker.timeline, l.marker.start), Timeline: l.marker.timeline, LSN: l.marker.start,
		Err: errors.New("the window is missing, although it was durable"),
		Hint: "restore it, or remove " + path.Join(l.dir, "flushed") + " to go on without it: the WAL from there on is then fetched again " +
			"from the upstream"}
}
