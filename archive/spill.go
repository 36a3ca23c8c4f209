package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// spillBytes is how much of an object lies in memory at most.
const spillBytes = 8 << 20

// spill holds bytes, the first of them in memory, the rest in a temporary file that has no name. The zero value is empty.
type spill struct {
	memory []byte
	file   *os.File
	filed  int64 // bytes in file
}

// reset empties it and keeps memory and file.
func (s *spill) reset() { s.memory, s.filed = s.memory[:0], 0 }

// write appends b. After an error some of b may be there.
func (s *spill) write(b []byte) error {
	if s.filed == 0 && len(s.memory)+len(b) <= spillBytes {
		s.memory = append(s.memory, b...)
		return nil
	}
	if s.file == nil {
		file, err := os.CreateTemp("", "walproxy-*")
		if err != nil {
			return err
		}
		if err := os.Remove(file.Name()); err != nil {
			return errors.Join(err, file.Close())
		}
		s.file = file
	}
	n, err := s.file.WriteAt(b, s.filed)
	s.filed += int64(n)
	if err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (s *spill) ReadAt(p []byte, offset int64) (int, error) {
	return readJoined(p, offset, int64(len(s.memory))+s.filed, s.memory, s.file)
}

// readJoined reads at offset of what head and, behind it, rest hold together: total bytes.
func readJoined(p []byte, offset, total int64, head []byte, rest io.ReaderAt) (n int, err error) {
	if offset < 0 || offset >= total {
		return 0, io.EOF
	}
	if left := total - offset; int64(len(p)) > left {
		p, err = p[:left], io.EOF
	}
	if offset < int64(len(head)) {
		n = copy(p, head[offset:])
	}
	if n < len(p) {
		m, readErr := rest.ReadAt(p[n:], offset+int64(n)-int64(len(head)))
		if n += m; n < len(p) {
			return n, readErr
		}
	}
	return n, err
}

// close releases the file. It is idempotent.
func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file, s.filed = nil, 0
	return file.Close()
}
