package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// readBytes is how much of a segment is read at a time.
const readBytes = 1 << 20

// walDir is a directory with WAL segments: pg_wal of a server, which may run, or what pg_receivewal writes.
type walDir struct {
	dir       string
	size      uint64 // of a segment
	system    protocol.SystemID
	files     map[segment]string // path
	histories []protocol.History
}

// segment is one segment of one timeline.
type segment struct {
	timeline protocol.Timeline
	start    protocol.LSN
}

// newWALDir returns the WAL in dir, a data directory of a server or a directory with segments.
func newWALDir(dir string) *walDir {
	if pgWAL := filepath.Join(dir, "pg_wal"); isDir(pgWAL) {
		dir = pgWAL
	}
	return &walDir{dir: dir}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (d *walDir) Name() string { return d.dir }

func (d *walDir) Close() error { return nil }

func (d *walDir) Inventory(ctx context.Context) (Inventory, error) {
	if err := d.list(); err != nil {
		return Inventory{}, err
	}
	spans, err := d.runs(ctx)
	if err != nil {
		return Inventory{}, err
	}
	v := Inventory{SystemID: d.system, Histories: d.histories}
	var parents []Span
	for _, s := range spans { // a timeline's first segment begins with WAL of its parent
		h, known := v.history(s.Timeline)
		if n := len(h.Entries); known && n > 0 && s.Begin < h.Begin() {
			begin := protocol.LSN(0)
			if n > 1 {
				begin = h.Entries[n-2].End
			}
			parents = append(parents, Span{h.Entries[n-1].Timeline, max(s.Begin, begin), h.Begin()})
		}
	}
	spans = owned(spans, d.histories)
	v.Spans = normal(append(d.endAtForks(spans), parents...))
	return v, nil
}

// endAtForks cuts what lies behind the end of a timeline, as the history of the newest timeline tells it.
func (d *walDir) endAtForks(spans []Span) []Span {
	if len(d.histories) == 0 {
		return spans
	}
	newest := slices.MaxFunc(d.histories, func(a, b protocol.History) int { return int(a.Timeline) - int(b.Timeline) })
	for i, s := range spans {
		if end, _, ended := newest.End(s.Timeline); ended {
			spans[i].End = min(s.End, end)
		}
	}
	return spans
}

// list finds the segments and histories.
func (d *walDir) list() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	d.files, d.histories, d.size, d.system = map[segment]string{}, nil, 0, 0
	for _, e := range entries {
		path := filepath.Join(d.dir, e.Name())
		if tli, ok := historyTimeline(e.Name()); ok {
			h, err := readHistory(tli, path)
			if err != nil {
				return err
			}
			d.histories = append(d.histories, h)
			continue
		}
		name, partial := strings.CutSuffix(e.Name(), ".partial")
		if len(name) != 24 || strings.Trim(name, "0123456789ABCDEF") != "" {
			continue
		}
		if err := d.addSegment(name, path, partial); err != nil {
			return err
		}
	}
	if len(d.files) == 0 {
		return fmt.Errorf("no WAL segment in %s", d.dir)
	}
	return nil
}

// historyTimeline returns the timeline that a history file is named for.
func historyTimeline(name string) (protocol.Timeline, bool) {
	stem, _, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(stem, 16, 32)
	tli := protocol.Timeline(n)
	return tli, err == nil && name == protocol.HistoryName(tli)
}

func readHistory(tli protocol.Timeline, path string) (protocol.History, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return protocol.History{}, err
	}
	h, err := protocol.ParseHistory(tli, content)
	if err != nil {
		return h, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	return h, nil
}

// addSegment lists a file whose first page is of the segment that it is named for; a server recycles files, and what they
// held before is no WAL.
func (d *walDir) addSegment(name, path string, partial bool) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // recycled just now
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var buf [wal.LongHeaderBytes]byte
	if n, err := file.ReadAt(buf[:], 0); err != nil && !errors.Is(err, io.EOF) || n < len(buf) {
		return err
	}
	h, _, err := wal.ParsePageHeader(buf[:])
	if err != nil || h.Flags&wal.LongHeader == 0 || !protocol.ValidSegmentSize(uint64(h.SegmentSize)) {
		return nil // zeros, or not of a version that is known
	}
	size := uint64(h.SegmentSize)
	tli, start, err := protocol.ParseSegmentName(name, size)
	if err != nil || h.Addr != start || h.Timeline > tli || uint64(info.Size()) != size && !partial {
		return nil
	}
	if d.size != 0 && (d.size != size || d.system != h.SystemID) {
		return fmt.Errorf("%s holds segments of more than one cluster", d.dir)
	}
	d.size, d.system = size, h.SystemID
	key := segment{tli, start}
	if _, whole := d.files[key]; !partial || !whole {
		d.files[key] = path
	}
	return nil
}

// runs returns what the files hold of each timeline: segments in a row, the last of which is read up to its last whole record.
func (d *walDir) runs(ctx context.Context) ([]Span, error) {
	var spans []Span
	for key := range d.files {
		spans = append(spans, Span{key.timeline, key.start, key.start + protocol.LSN(d.size)})
	}
	spans = normal(spans)
	for i := range spans {
		if i+1 < len(spans) && spans[i+1].Timeline == spans[i].Timeline {
			continue // a segment that others follow is whole
		}
		end, err := d.lastRecord(ctx, spans[i])
		if err != nil {
			return nil, err
		}
		spans[i].End = end
	}
	return normal(spans), nil
}

// tailSegments is how many segments of a run are read to find its end: a record may reach from one into the next.
const tailSegments = 2

// lastRecord returns where the last whole record of a run ends. A server writes pages ahead of records that are not complete yet.
// What is damaged before it is for the comparison to find; what a recycled file held before says another page address.
func (d *walDir) lastRecord(ctx context.Context, run Span) (protocol.LSN, error) {
	from := run.End - protocol.LSN(d.size)
	for i := 1; i < tailSegments && from > run.Begin; i++ {
		from -= protocol.LSN(d.size)
	}
	r := &segmentReader{dir: d, timeline: run.Timeline, next: from, end: run.End}
	w := wal.NewWalker(from, wal.Options{Stream: wal.Stream{SegmentSize: uint32(d.size), SystemID: d.system}})
	end := from
	for {
		content, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return end, nil
		}
		if err != nil {
			return 0, err
		}
		if err := w.Feed(content); err != nil {
			return 0, err
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			switch {
			case ev.Kind == wal.KindRecord && wal.CRC(ev.Data) == crcOf(ev.Data):
				end = min((ev.End+7)&^7, run.End)
			case ev.Kind == wal.KindSwitchTail:
				end = ev.End
			}
		}
	}
}

// crcOf returns xl_crc of a record, which has its header at least.
func crcOf(record []byte) uint32 {
	h, err := wal.ParseHeader(record)
	if err != nil {
		return 0
	}
	return h.CRC
}

func (d *walDir) Open(_ context.Context, tli protocol.Timeline, from, to protocol.LSN) (Reader, error) {
	return &segmentReader{dir: d, timeline: tli, next: from, end: to}, nil
}

// segmentReader reads segments of one timeline, or of one that descends from it where those have none.
type segmentReader struct {
	dir       *walDir
	timeline  protocol.Timeline
	next, end protocol.LSN
	buf       []byte
}

func (r *segmentReader) Close() error { return nil }

func (r *segmentReader) Next(ctx context.Context) ([]byte, error) {
	if r.next >= r.end {
		return nil, io.EOF
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	start := r.next.Floor(r.dir.size)
	path, err := r.dir.find(r.timeline, start)
	if err != nil {
		return nil, err
	}
	n := min(uint64(r.end-r.next), uint64(start)+r.dir.size-uint64(r.next), readBytes)
	if r.buf == nil {
		r.buf = make([]byte, readBytes)
	}
	if err := readStable(path, r.buf[:n], int64(r.next-start)); err != nil {
		return nil, err
	}
	r.next += protocol.LSN(n)
	return r.buf[:n], nil
}

// find returns the file that holds the segment at start of tli's WAL.
func (d *walDir) find(tli protocol.Timeline, start protocol.LSN) (string, error) {
	if path, ok := d.files[segment{tli, start}]; ok {
		return path, nil
	}
	for _, h := range d.histories {
		if !h.Contains(tli) {
			continue
		}
		if path, ok := d.files[segment{h.Timeline, start}]; ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("segment %s is not in %s", protocol.SegmentName(tli, start, d.size), d.dir)
}

// readStable fills buf from a file that a server may recycle at any moment: what it read counts only if the name still stands
// for the same file afterwards.
func readStable(path string, buf []byte, offset int64) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("it was removed meanwhile: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.ReadAt(buf, offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(path); err != nil || !os.SameFile(opened, named) {
		return fmt.Errorf("%s was removed meanwhile", path)
	}
	return nil
}
