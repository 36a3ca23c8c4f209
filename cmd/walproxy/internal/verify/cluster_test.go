package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/recompress"
	"walproxy/slots/spool"
)

// A cluster whose WAL tests write themselves: timeline 1 from base on, timeline 2 from fork on, in segments of 1 MiB.
const (
	segmentSize = 1 << 20
	pageSize    = 8192
	base        = protocol.LSN(1 << 20)
	fork        = protocol.LSN(3<<20 + 5*pageSize + wal.ShortHeaderBytes + 3*recordBytes)
	end         = protocol.LSN(4<<20 + 17*pageSize)
	recordBytes = 1000
	systemID    = protocol.SystemID(7300000000000000001)
)

var historyOf2 = fmt.Sprintf("1\t%s\tno recovery target specified\n", fork)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wholeWAL returns the WAL from base up to end as timeline 2 sees it. What timeline 1 had behind the fork is another function's.
func wholeWAL() []byte { return bytes.Clone(madeWhole()) }

// parentWAL returns the WAL of timeline 1, which went on behind the fork.
func parentWAL() []byte { return bytes.Clone(madeParent()) }

var (
	madeWhole  = sync.OnceValue(func() []byte { return extend(extend(nil, 1, fork), 2, end) })
	madeParent = sync.OnceValue(func() []byte { return extend(nil, 1, fork.Next(segmentSize)) })
)

// extend appends WAL of a timeline up to an LSN to b, which begins at base: records that end with their page, with good checksums.
func extend(b []byte, tli protocol.Timeline, to protocol.LSN) []byte {
	for at := base + protocol.LSN(len(b)); at < to; at = base + protocol.LSN(len(b)) {
		rest := uint64(at.Next(pageSize) - at)
		if uint64(at)%pageSize == 0 {
			h := wal.PageHeader{Version: wal.PG15, Timeline: tli, Addr: at}
			if uint64(at)%segmentSize == 0 {
				h.Flags = wal.LongHeader
				h.SystemID, h.SegmentSize, h.PageSize = systemID, segmentSize, pageSize
			}
			b = h.Append(b)
			continue
		}
		n := min(rest, recordBytes)
		header := wal.Header{TotalLength: uint32(n), XID: uint32(tli), Prev: before(at), Info: 0x20, Rmgr: wal.RmgrXLOG} // NOOP
		record := append(header.Append(nil), 255)
		record = binary.LittleEndian.AppendUint32(record, uint32(n)-wal.RecordHeaderBytes-5)
		for i := len(record); i < int(n); i++ {
			record = append(record, byte((uint64(at)+uint64(i))*0x9e3779b97f4a7c15>>58)+byte(tli))
		}
		wal.SetCRC(record)
		b = append(b, record...)
	}
	return b
}

// before returns where the record before the one at an LSN begins: full ones follow each other, and a short one ends the page.
func before(at protocol.LSN) protocol.LSN {
	header := func(page protocol.LSN) protocol.LSN {
		if uint64(page)%segmentSize == 0 {
			return wal.LongHeaderBytes
		}
		return wal.ShortHeaderBytes
	}
	page := at.Floor(pageSize)
	if at > page+header(page) {
		return at - recordBytes
	}
	page -= pageSize
	return page + header(page) + (pageSize-header(page))/recordBytes*recordBytes
}

// place is one way to keep WAL.
type place struct {
	name string
	make func(t *testing.T, whole []byte) string // what Open takes
}

// places are all ways but servers, which the integration tests have.
var places = []place{{"server's files", serverFiles}, {"received files", receivedFiles}, {"node's files", nodeFiles}, {"archive", archived}}

// serverFiles writes the data directory of a server on timeline 2, which went over from timeline 1.
func serverFiles(t *testing.T, whole []byte) string {
	t.Helper()
	dir := t.TempDir()
	pgWAL := filepath.Join(dir, "pg_wal")
	must(t, os.Mkdir(pgWAL, 0o700))
	parent := parentWAL()
	copy(parent, whole[:fork-base])
	writeSegments(t, pgWAL, 1, base, parent)
	first := fork.Floor(segmentSize)
	writeSegments(t, pgWAL, 2, first, whole[first-base:])
	recycled := filepath.Join(pgWAL, protocol.SegmentName(2, end.Next(segmentSize), segmentSize))
	must(t, os.WriteFile(recycled, parent[:segmentSize], 0o600)) // for later; what it held before is still there
	must(t, os.WriteFile(filepath.Join(pgWAL, protocol.HistoryName(2)), []byte(historyOf2), 0o600))
	return dir
}

// receivedFiles writes what pg_receivewal has after the promotion: the last segment is not complete.
func receivedFiles(t *testing.T, whole []byte) string {
	t.Helper()
	dir := t.TempDir()
	writeSegments(t, dir, 1, base, whole[:fork-base])
	first := fork.Floor(segmentSize)
	must(t, os.Rename(filepath.Join(dir, protocol.SegmentName(1, first, segmentSize)), filepath.Join(dir, protocol.SegmentName(1, first, segmentSize)+".partial")))
	writeSegments(t, dir, 2, first, whole[first-base:])
	last := filepath.Join(dir, protocol.SegmentName(2, end, segmentSize))
	must(t, os.Rename(last, last+".partial"))
	must(t, os.WriteFile(filepath.Join(dir, protocol.HistoryName(2)), []byte(historyOf2), 0o600))
	return dir
}

// writeSegments writes WAL that begins with a segment into segment files, the last of which zeros fill.
func writeSegments(t *testing.T, dir string, tli protocol.Timeline, start protocol.LSN, content []byte) {
	t.Helper()
	for at := 0; at < len(content); at += segmentSize {
		segment := make([]byte, segmentSize)
		copy(segment, content[at:])
		name := protocol.SegmentName(tli, start+protocol.LSN(at), segmentSize)
		must(t, os.WriteFile(filepath.Join(dir, name), segment, 0o600))
	}
}

// line is the WAL that a timeline owns.
type line struct {
	timeline   protocol.Timeline
	start, end protocol.LSN
}

var lines = []line{{1, base, fork}, {2, fork, end}}

// frame returns WAL as a frame as it is.
func frame(tli protocol.Timeline, start protocol.LSN, content []byte) *link.Frame {
	f := &link.Frame{Timeline: tli, Start: start, RawLen: uint32(len(content)), RawSum: link.Checksum(content), Payload: content}
	f.Seal()
	return f
}

// nodeFiles writes the data directory of a node, whose first window is sealed and the others live.
func nodeFiles(t *testing.T, whole []byte) string {
	t.Helper()
	dir := t.TempDir()
	log, err := spool.Open(dir, spool.Options{ResetDistance: 1 << 20, NoSync: true})
	must(t, err)
	must(t, log.SetIdentity(protocol.Identity{SystemID: systemID, SegmentSize: segmentSize, WALBlockSize: pageSize, ServerVersion: "15.1"}))
	for _, l := range lines {
		for at := l.start; at < l.end; {
			to := min(at+100_000, at.Next(1<<20), l.end)
			must(t, log.Append(frame(l.timeline, at, whole[at-base:to-base])))
			at = to
		}
		if l.timeline == 1 {
			over, err := link.NewTimelineEnd(1, fork, 2, []byte(historyOf2))
			must(t, err)
			must(t, log.Append(&over))
		}
	}
	sealer, err := recompress.NewSealer(recompress.Options{Codec: recompress.Zstd})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	sealed := 0
	must(t, log.Seal(ctx, func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
		if sealed++; sealed == 2 {
			cancel()
		}
		out, _, err := sealer.Seal(dst, h, frames)
		return out, err
	}))
	must(t, log.Close())
	return dir
}

// archived makes an archive, an object for each mebibyte.
func archived(t *testing.T, whole []byte) string {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	id := archive.Identity{SystemID: systemID, Major: 15, SegmentSize: segmentSize, WALBlockSize: pageSize}
	a, err := archive.Create(ctx, file.New(dir), id)
	must(t, err)
	_, err = a.PutFile(ctx, archive.BytesFile(protocol.HistoryName(2), []byte(historyOf2)))
	must(t, err)
	sealer, err := recompress.NewSealer(recompress.Options{Codec: recompress.Zstd})
	must(t, err)
	var b archive.Builder
	for _, l := range lines {
		for at := l.start; at < l.end; {
			to := min(at.Next(1<<20), l.end)
			h := link.WindowHeader{Kind: link.WindowLive, SystemID: systemID, Timeline: l.timeline, SegmentSize: segmentSize,
				WALBlockSize: pageSize, ResetDistance: 1 << 20, Start: at}
			f := frame(l.timeline, at, whole[at-base:to-base])
			window, _, err := sealer.Seal(nil, h, func(yield func(*link.Frame, error) bool) { yield(f, nil) })
			must(t, err)
			b.Begin(id)
			must(t, b.Add(window))
			o, err := b.Finish()
			must(t, err)
			_, err = a.Put(ctx, o)
			must(t, err)
			at = to
		}
	}
	must(t, b.Close())
	return "file://" + dir
}

// open opens what a place made.
func open(t *testing.T, name string) Source {
	t.Helper()
	s, err := Open(name)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// compare compares two places.
func compare(t *testing.T, a, b string) (*Report, error) {
	t.Helper()
	return Compare(context.Background(), open(t, a), open(t, b), Options{})
}

// readAll returns the WAL of a range of a source.
func readAll(t *testing.T, s Source, tli protocol.Timeline, from, to protocol.LSN) []byte {
	t.Helper()
	r, err := s.Open(context.Background(), tli, from, to)
	must(t, err)
	defer func() { must(t, r.Close()) }()
	var all bytes.Buffer
	for protocol.LSN(all.Len()) < to-from {
		piece, err := r.Next(context.Background())
		must(t, err)
		all.Write(piece)
	}
	return all.Bytes()
}
