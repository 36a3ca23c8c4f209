package bench

import (
	"fmt"
	"io"
	"os"
	"sort"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// stream is contiguous WAL of one timeline, in one or several files.
type stream struct {
	timeline    protocol.Timeline
	start       protocol.LSN
	systemID    protocol.SystemID // 0 if no page says it
	segmentSize uint32
	pageSize    uint32
	files       []walFile
	hint        string // what is wrong with a file that does not begin like WAL
}

// walFile is a piece of a stream.
type walFile struct {
	path  string
	start protocol.LSN
	bytes int64
}

func (f *walFile) end() protocol.LSN { return f.start + protocol.LSN(f.bytes) }

func (s *stream) end() protocol.LSN { return s.files[len(s.files)-1].end() }

func (s *stream) bytes() int64 { return int64(s.end() - s.start) }

// walOptions describe the stream to a wal.Walker.
func (s *stream) walOptions() wal.Options {
	return wal.Options{Stream: wal.Stream{PageSize: s.pageSize, SegmentSize: s.segmentSize}}
}

// readAt fills dst with the WAL from lsn on. All of it is in the stream.
func (s *stream) readAt(dst []byte, lsn protocol.LSN) error {
	i := sort.Search(len(s.files), func(i int) bool { return s.files[i].end() > lsn })
	for len(dst) > 0 {
		f := &s.files[i]
		n := min(int64(len(dst)), int64(f.end()-lsn))
		if err := f.readAt(dst[:n], int64(lsn-f.start)); err != nil {
			return fmt.Errorf("read WAL at %s: %w", lsn, err)
		}
		dst, lsn = dst[n:], lsn+protocol.LSN(n)
		i++
	}
	return nil
}

// readAt opens the file for one read: an input may have more files than a process may have open.
func (f *walFile) readAt(dst []byte, offset int64) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.ReadFull(io.NewSectionReader(file, offset, int64(len(dst))), dst)
	return err
}

// window is the part of a stream between two reset boundaries.
type window struct {
	stream *stream
	start  protocol.LSN
	bytes  int
}

// windows calls do for each window of the stream in turn until it returns false.
func (s *stream) windows(distance uint32, do func(window) bool) bool {
	for at, end := s.start, s.end(); at < end; {
		next := min(at.Next(uint64(distance)), end)
		if !do(window{stream: s, start: at, bytes: int(next - at)}) {
			return false
		}
		at = next
	}
	return true
}
