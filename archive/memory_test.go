package archive_test

import (
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"walproxy/archive"
)

// memory is a store whose objects tests put and change as they like. Not safe for concurrent use.
type memory struct {
	objects map[string][]byte
	gets    int
	bytes   int64 // handed out
	lists   int
	onGet   func(name string) // before a Get
}

func (m *memory) Put(_ context.Context, name string, body io.ReaderAt, size int64) error {
	if _, ok := m.objects[name]; ok {
		return archive.ErrExists
	}
	b, err := io.ReadAll(io.NewSectionReader(body, 0, size))
	m.objects[name] = b
	return err
}

func (m *memory) Get(_ context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	m.gets++
	if m.onGet != nil {
		m.onGet(name)
	}
	b, ok := m.objects[name]
	if !ok {
		return dst, archive.ErrNotExist
	}
	offset = min(offset, int64(len(b)))
	b = b[offset:min(offset+length, int64(len(b)))]
	m.bytes += int64(len(b))
	return append(dst, b...), nil
}

func (m *memory) List(_ context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	m.lists++
	return func(yield func(archive.Info, error) bool) {
		for _, name := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(name, prefix) && name > after && !yield(archive.Info{Name: name, Bytes: int64(len(m.objects[name]))}, nil) {
				return
			}
		}
	}
}

func (m *memory) Delete(_ context.Context, name string) error {
	delete(m.objects, name)
	return nil
}

func (m *memory) String() string { return "memory" }
func (m *memory) Close() error   { return nil }
