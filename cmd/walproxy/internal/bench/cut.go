package bench

import (
	"fmt"
	"strconv"

	"walproxy/protocol"
	"walproxy/protocol/wal"
	"walproxy/recompress"
)

// Cut says where the frames of live windows end, besides at the end of a window. The zero value: windows are sealed.
type Cut struct {
	Commits bool // behind each transaction's end, as under a load that commits synchronously
	Bytes   int  // behind so many bytes; 0 does not count
	Records bool // with Bytes: where the record in progress begins, as a node that holds back incomplete records has it
}

// chunkBytes is what a server sends at once where there is a lot of WAL. Source: PostgreSQL src/backend/replication/walsender.c,
// MAX_SEND_SIZE (13-18).
const chunkBytes = 128 << 10

// ParseCut reads "window", "commit", "chunk" or a number of bytes by parseBytes.
func ParseCut(text string, parseBytes func(string) (uint64, error)) (Cut, error) {
	switch text {
	case "window":
		return Cut{}, nil
	case "commit":
		return Cut{Commits: true}, nil
	case "chunk":
		return Cut{Bytes: chunkBytes, Records: true}, nil
	}
	n, err := parseBytes(text)
	if err != nil || n == 0 || n > 1<<30 {
		return Cut{}, fmt.Errorf("flush %q: want window, commit, chunk or a number of bytes", text)
	}
	return Cut{Bytes: int(n)}, nil
}

// sealed reports whether windows are sealed: where nothing cuts them.
func (c Cut) sealed() bool { return c == Cut{} }

func (c Cut) String() string {
	switch {
	case c.Commits:
		return "a frame per commit"
	case c.Records:
		return "a frame per chunk, of whole records"
	case c.Bytes > 0:
		return "a frame per " + strconv.Itoa(c.Bytes) + " bytes"
	}
	return "sealed windows"
}

// lookBackBytes is how much WAL before a window is walked, so that the record which goes over the boundary is known.
const lookBackBytes = 64 << 10

// cutter finds out where the frames of a window end.
type cutter struct {
	cut    Cut
	holder recompress.Holder
	before []byte
	ends   []int
}

// frameEnds returns the offsets in raw, the WAL of w, at which frames end; the last one is its length. Valid until the next call.
func (c *cutter) frameEnds(w window, raw []byte) ([]int, error) {
	c.ends = c.ends[:0]
	switch {
	case c.cut.Commits:
		if err := c.commits(w, raw); err != nil {
			return nil, err
		}
	case c.cut.Records:
		c.records(w, raw)
	case c.cut.Bytes > 0:
		for end := c.cut.Bytes; end < len(raw); end += c.cut.Bytes {
			c.ends = append(c.ends, end)
		}
	}
	if n := len(c.ends); n == 0 || c.ends[n-1] != len(raw) {
		c.ends = append(c.ends, len(raw))
	}
	return c.ends, nil
}

// records cuts where a node does that takes raw in chunks and holds back incomplete records.
func (c *cutter) records(w window, raw []byte) {
	c.holder.Discard()
	end := 0
	for at := 0; at < len(raw); at += c.cut.Bytes {
		_, out := c.holder.Take(w.stream.timeline, w.start+protocol.LSN(at), raw[at:min(at+c.cut.Bytes, len(raw))])
		if end += len(out); len(out) > 0 {
			c.ends = append(c.ends, end)
		}
	}
}

func (c *cutter) commits(w window, raw []byte) error {
	from := max(w.stream.start, w.start-min(w.start, lookBackBytes))
	c.before = append(c.before[:0], make([]byte, w.start-from)...)
	if err := w.stream.readAt(c.before, from); err != nil {
		return err
	}
	walker := wal.NewWalker(from, w.stream.walOptions())
	for _, chunk := range [][]byte{c.before, raw} {
		if err := walker.Feed(chunk); err != nil {
			return fmt.Errorf("walk WAL at %s: %w", w.start, err)
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			if ev.Kind == wal.KindRecord && ev.End > w.start && ends(ev.Data) {
				c.ends = append(c.ends, int(ev.End-w.start))
			}
		}
	}
	return nil
}

// ends reports whether a session waits for the record to be elsewhere.
func ends(record []byte) bool {
	h, err := wal.ParseHeader(record)
	return err == nil && h.Class().Awaited()
}
