package spool

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/fs"
)

// WindowSuffix ends the name of every window file.
const WindowSuffix = ".win"

// window is one file of the log. Fields without a note do not change once the window is listed.
type window struct {
	path   string
	header link.WindowHeader
	file   fs.File      // written by Append while the window is the newest, closed by Sync when a later one is and this one is durable
	names  []string     // directories whose entries for it are not durable, innermost first; of whoever holds syncMu once it is listed
	length int64        // of the file, while it is the newest; of whoever appends
	size   atomic.Int64 // bytes of the file that hold the header and complete frames; grows while the window is live
	// ended tells readers that no frame follows the ones below size. Written after the last size, read before it.
	ended atomic.Bool
	// unsealable tells the sealer that it failed on what the file holds.
	unsealable atomic.Bool
}

// fileBytes returns the length of the window's file.
func (w *window) fileBytes() int64 {
	if w.header.Kind == link.WindowSealed {
		return w.header.FileBytes()
	}
	return w.size.Load()
}

// limit returns the reset boundary that ends the window.
func (w *window) limit() protocol.LSN { return w.header.Start.Next(uint64(w.header.ResetDistance)) }

// bad makes an error of what reading a frame returned: a *CorruptError, unless the file could not be read or is of another
// version.
func (w *window) bad(offset int64, lsn protocol.LSN, err error) error {
	var unseen *link.UnseenStreamError
	if errors.Is(err, link.ErrCorrupt) || errors.Is(err, link.ErrShort) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errDisorder) || errors.Is(err, errNoEnd) || errors.As(err, &unseen) {
		return w.corrupt(offset, lsn, err)
	}
	return fmt.Errorf("read window %s at offset %d, WAL from %s: %w", w.path, offset, lsn, err)
}

func (w *window) corrupt(offset int64, lsn protocol.LSN, err error) *CorruptError {
	return &CorruptError{File: w.path, Offset: offset, Timeline: w.header.Timeline, LSN: lsn, Err: err,
		Hint: "the WAL from there on must be fetched again: move this file and all later ones of the spool away, and " + dataDir(w.path) +
			"/flushed as well, and start the node while the upstream still has that WAL; " +
			"walproxy inspect --check " + dataDir(w.path) + " finds all that is damaged"}
}

// line is the part of the log that belongs to one timeline, guarded by Log.mu.
type line struct {
	timeline protocol.Timeline
	begin    protocol.LSN // first byte held
	end      protocol.LSN // behind the last byte held, or the switch point once next is set
	next     protocol.Timeline
	windows  []*window // ascending; empty for a timeline that is known only as the next one
}

// endOf returns the LSN behind window i's last byte that belongs to the timeline.
func (l *line) endOf(i int) protocol.LSN {
	if i+1 < len(l.windows) {
		return l.windows[i+1].header.Start
	}
	return l.end
}

// dataDir returns the data directory of a window file.
func dataDir(windowPath string) string { return path.Dir(path.Dir(path.Dir(windowPath))) }

func timelineDir(root string, tli protocol.Timeline) string {
	return path.Join(root, fmt.Sprintf("%08X", uint32(tli)))
}

func windowPath(root string, tli protocol.Timeline, start protocol.LSN) string {
	return path.Join(timelineDir(root, tli), fmt.Sprintf("%016X%s", uint64(start), WindowSuffix))
}

// parseHex reads a number of exactly digits upper-case hexadecimal digits.
func parseHex(s string, digits int) (uint64, bool) {
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil && len(s) == digits && s == fmt.Sprintf("%0*X", digits, v)
}
