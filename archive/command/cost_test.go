package command

import (
	"context"
	"io"
	"iter"
	"testing"

	"walproxy/archive"
	"walproxy/protocol"
)

// counting counts the requests to a store.
type counting struct {
	archive.Store
	puts, gets, lists int
}

func (c *counting) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	c.puts++
	return c.Store.Put(ctx, name, body, size)
}

func (c *counting) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	c.gets++
	return c.Store.Get(ctx, dst, name, offset, length)
}

func (c *counting) List(ctx context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	c.lists++
	return c.Store.List(ctx, prefix, after)
}

// What docs/recovery.md says of the requests that a segment takes.
func TestRequests(t *testing.T) {
	p, s := newPGWAL(t), &counting{Store: newStore(t)}
	names := p.segments(1, 0, 6)
	p.push(s, names[0])
	expect := func(what string, puts, gets, lists int) {
		t.Helper()
		if s.puts != puts || s.gets != gets || s.lists != lists {
			t.Errorf("%s: %d puts, %d gets, %d lists, want %d, %d, %d", what, s.puts, s.gets, s.lists, puts, gets, lists)
		}
		s.puts, s.gets, s.lists = 0, 0, 0
	}
	expect("the first push", 3, 2, 0)
	p.push(s, names[1:]...)
	expect("5 pushes", 5, 5, 0)
	gets(t, s, names[0], segmentBytes(1, 0, 0), GetOptions{})
	expect("a get", 0, 2, 0)
	must(t, ReadAhead(context.Background(), s, t.TempDir(), names[0], 4))
	expect("4 segments read ahead", 0, 5, 0)
}

// A server that pushes what a node has archived, or the other way round, finds it there under the same name.
func TestPushWhatANodeArchived(t *testing.T) {
	ctx, p, s := context.Background(), newPGWAL(t), newStore(t)
	names := p.segments(1, segmentSize, 1)
	b := segmentBytes(1, segmentSize, 0)
	node(t, s, 1, segmentSize, b)
	done, err := Push(ctx, s, p.path(names[0]), fast)
	if err != nil || !done.Existed || done.Name != archive.WALName(1, segmentSize, 2*segmentSize) {
		t.Fatalf("push: %+v, %v", done, err)
	}
	next := protocol.SegmentName(1, 2*segmentSize, segmentSize)
	p.write(next, segmentBytes(1, 2*segmentSize, 0))
	p.push(s, next)
	node(t, s, 1, 2*segmentSize, segmentBytes(1, 2*segmentSize, 0))
	gets(t, s, next, segmentBytes(1, 2*segmentSize, 0), GetOptions{})
}
