package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// partialSuffix ends the name of a segment that pg_receivewal is writing, or that ended with its timeline.
const partialSuffix = ".partial"

// findStreams returns the WAL that path holds: a file, whatever its name, or the segments in a directory. Contiguous segments
// of a timeline are one stream; a segment that is shorter than its name promises ends one.
func findStreams(path string) ([]stream, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Mode().IsRegular():
		s, err := fileStream(path, info)
		return []stream{s}, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is neither a file nor a directory", path)
	}
	segments, err := segmentFiles(path)
	if err != nil {
		return nil, err
	}
	if len(segments) == 0 {
		return nil, fmt.Errorf("%s holds no WAL segments (names of 24 hexadecimal digits, not empty)%s", path, noSegmentsHint(path))
	}
	return joinSegments(segments)
}

// noSegmentsHint says what to do about a directory without segments, if it looks like something else that holds WAL.
func noSegmentsHint(dir string) string {
	if info, err := os.Stat(filepath.Join(dir, "pg_wal")); err == nil && info.IsDir() {
		return "; its pg_wal may: " + filepath.Join(dir, "pg_wal")
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		name, suffix, ok := strings.Cut(entry.Name(), ".")
		if _, _, err := protocol.ParseSegmentName(name, protocol.MinSegmentSize); ok && err == nil && slices.Contains(packedSuffixes, suffix) {
			return fmt.Sprintf("; %s is compressed: decompress it and the others first", entry.Name())
		}
	}
	return ""
}

// packedSuffixes end names of segments that an archive_command compressed, and packed is how such files begin.
var (
	packedSuffixes = []string{"gz", "zst", "zstd", "lz4", "xz", "bz2"}
	packed         = []struct{ name, magic string }{
		{"gzip", "\x1f\x8b"}, {"zstd", "\x28\xb5\x2f\xfd"}, {"lz4", "\x04\x22\x4d\x18"}, {"xz", "\xfd7zXZ\x00"}, {"bzip2", "BZh"},
	}
)

// hint says what is wrong with a file that was named as an input, "" if it begins like WAL. It is measured nevertheless.
func (o *opened) hint() string {
	switch {
	case o.bytes == 0:
		return o.path + " is empty"
	case o.valid:
		return ""
	}
	for _, p := range packed {
		if strings.HasPrefix(string(o.begin), p.magic) {
			return fmt.Sprintf("%s is compressed with %s: decompress it first to measure the WAL in it", o.path, p.name)
		}
	}
	return o.path + " does not begin with a page of WAL: its bytes are measured as they are"
}

// opened is what the first page of a file and its size tell.
type opened struct {
	path   string
	bytes  int64
	begin  []byte // the first bytes
	header wal.PageHeader
	valid  bool // header is one
}

func look(path string, bytes int64) (opened, error) {
	o := opened{path: path, bytes: bytes}
	file, err := os.Open(path)
	if err != nil {
		return o, err
	}
	defer func() { _ = file.Close() }()
	page := make([]byte, wal.LongHeaderBytes)
	n, err := io.ReadFull(file, page)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return o, fmt.Errorf("read %s: %w", path, err)
	}
	o.begin = page[:n]
	o.header, _, err = wal.ParsePageHeader(o.begin)
	o.valid = err == nil
	return o, nil
}

// segmentSize returns wal_segment_size as the header says it, 0 if it does not.
func (o *opened) segmentSize() uint32 {
	if o.valid && protocol.ValidSegmentSize(uint64(o.header.SegmentSize)) {
		return o.header.SegmentSize
	}
	return 0
}

// stream returns a stream of the file alone, that starts at start.
func (o *opened) stream(tli protocol.Timeline, start protocol.LSN, segmentSize uint32) stream {
	s := stream{
		timeline: tli, start: start, segmentSize: segmentSize, pageSize: wal.DefaultPageSize,
		files: []walFile{{path: o.path, start: start, bytes: o.bytes}},
	}
	if o.segmentSize() != 0 {
		s.systemID = o.header.SystemID
		if size := o.header.PageSize; size >= wal.MinPageSize && size <= wal.MaxPageSize && size&(size-1) == 0 {
			s.pageSize = size
		}
	}
	return s
}

// fileStream returns a single file as a stream. Where its WAL lies is said by its name, or else by its first page; a file that
// says nothing is taken to be at 0/0.
func fileStream(path string, info os.FileInfo) (stream, error) {
	o, err := look(path, info.Size())
	if err != nil {
		return stream{}, err
	}
	size := o.segmentSize()
	if size == 0 && protocol.ValidSegmentSize(uint64(info.Size())) {
		size = uint32(info.Size())
	}
	if size == 0 {
		size = wal.DefaultSegmentSize
	}
	name := strings.TrimSuffix(filepath.Base(path), partialSuffix)
	tli, start, err := protocol.ParseSegmentName(name, uint64(size))
	if err != nil {
		tli, start = 1, 0
		if h := &o.header; o.valid && h.Timeline != 0 && h.Addr%wal.MinPageSize == 0 && h.Addr < wal.MaxLSN-protocol.LSN(o.bytes) {
			tli, start = h.Timeline, h.Addr
		}
	}
	s := o.stream(tli, start, size)
	s.hint = o.hint()
	return s, nil
}

// segmentFiles looks at the segments in a directory, by name. A partial one counts only where there is no whole one.
func segmentFiles(dir string) ([]opened, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []opened
	last := ""
	for _, entry := range entries { // "NAME" comes before "NAME.partial"
		name := strings.TrimSuffix(entry.Name(), partialSuffix)
		if _, _, err := protocol.ParseSegmentName(name, protocol.MinSegmentSize); err != nil || name == last {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Size() == 0 {
			continue
		}
		o, err := look(filepath.Join(dir, entry.Name()), info.Size())
		if err != nil {
			return nil, err
		}
		last = name
		found = append(found, o)
	}
	return found, nil
}

// joinSegments makes streams of files that are in the order of their names.
func joinSegments(files []opened) ([]stream, error) {
	size := uint32(0)
	for i := range files {
		if size = files[i].segmentSize(); size != 0 {
			break
		}
	}
	if size == 0 { // no page says it: a whole segment does by its length
		longest := slices.MaxFunc(files, func(a, b opened) int { return int(a.bytes - b.bytes) }).bytes
		if size = wal.DefaultSegmentSize; protocol.ValidSegmentSize(uint64(longest)) {
			size = uint32(longest)
		}
	}
	var streams []stream
	for i := range files {
		name := strings.TrimSuffix(filepath.Base(files[i].path), partialSuffix)
		tli, start, err := protocol.ParseSegmentName(name, uint64(size))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files[i].path, err)
		}
		if n := len(streams); n > 0 && streams[n-1].timeline == tli && streams[n-1].end() == start {
			streams[n-1].files = append(streams[n-1].files, walFile{path: files[i].path, start: start, bytes: files[i].bytes})
			continue
		}
		streams = append(streams, files[i].stream(tli, start, size))
	}
	return streams, nil
}
