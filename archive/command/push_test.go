package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/wal"
	"walproxy/recompress"
)

const history2 = "1\t0/180000\tno recovery target specified\n"

func TestPushGet(t *testing.T) {
	p, s := newPGWAL(t), newStore(t)
	names := p.segments(1, 0, 3)
	backup := "000000010000000000000001.00000028.backup"
	p.write(backup, []byte("START WAL LOCATION: 0/100028\n"))
	p.write("00000002.history", []byte(history2))
	partial := names[1] + ".partial"
	p.write(partial, segmentBytes(1, segmentSize, 0))
	all := append(names, backup, "00000002.history", partial)
	p.push(s, all...)
	for _, name := range all {
		want, err := os.ReadFile(p.path(name))
		must(t, err)
		gets(t, s, name, want, GetOptions{})
		for _, codec := range []recompress.Codec{recompress.Zstd, recompress.Model} {
			if done, err := Push(context.Background(), s, p.path(name), recompress.Options{Codec: codec}); err != nil || !done.Existed {
				t.Fatalf("push %s again: %+v, %v", name, done, err)
			}
		}
	}
	a, err := archive.Open(context.Background(), s)
	must(t, err)
	if want := (archive.Identity{SystemID: systemID, Major: 15, SegmentSize: segmentSize, WALBlockSize: pageSize}); a.Identity() != want {
		t.Errorf("the archive is of %s", a.Identity())
	}
}

// Windows that are made side by side make the same object as one after the other.
func TestPushWindowsAtOnce(t *testing.T) {
	ctx, p := context.Background(), newPGWAL(t)
	const size = 8 << 20
	name, content := protocol.SegmentName(1, size, size), segmentOf(size, 1, size, 0)
	p.write(name, content)
	var objects [][]byte
	for _, processors := range []int{1, 4} {
		old := runtime.GOMAXPROCS(processors)
		s := newStore(t)
		done, err := Push(ctx, s, p.path(name), recompress.Options{Codec: recompress.Zstd, ResetDistance: 1 << 20})
		must(t, err)
		gets(t, s, name, content, GetOptions{})
		object, err := s.Get(ctx, nil, done.Name, 0, 2*size)
		must(t, err)
		h, err := archive.DecodeHeader(object)
		must(t, err)
		if len(h.Windows) != 8 {
			t.Errorf("%d windows", len(h.Windows))
		}
		objects = append(objects, object)
		runtime.GOMAXPROCS(old)
	}
	if !bytes.Equal(objects[0], objects[1]) {
		t.Error("the objects differ")
	}
}

// A segment that cannot be read to its end makes no object.
func TestPushReadError(t *testing.T) {
	p := newPGWAL(t)
	const size = 4 << 20
	path := p.write(protocol.SegmentName(1, size, size), segmentOf(size, 1, size, 0))
	s, err := openSegment(path)
	must(t, err)
	defer func() { must(t, s.Close()) }()
	must(t, os.Truncate(path, size/2)) // recycled meanwhile
	var b archive.Builder
	if _, err := s.build(context.Background(), &b, recompress.Options{Codec: recompress.Zstd, ResetDistance: 1 << 20}); !errors.Is(err, io.EOF) {
		t.Errorf("a file that was cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.build(ctx, &b, fast); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestPushConflicts(t *testing.T) {
	ctx, s := context.Background(), newStore(t)
	p := newPGWAL(t)
	names := p.segments(1, 0, 1)
	p.write("00000002.history", []byte(history2))
	p.push(s, names[0], "00000002.history")

	other := segmentBytes(1, 0, 0)
	other[500_000]++
	p.write(names[0], other)
	var conflict *archive.ConflictError
	if _, err := Push(ctx, s, p.path(names[0]), fast); !errors.As(err, &conflict) || conflict.LSN != 500_000 {
		t.Fatalf("other WAL: %v", err)
	}
	p.write("00000002.history", []byte(strings.Replace(history2, "18", "19", 1)))
	if _, err := Push(ctx, s, p.path("00000002.history"), fast); !errors.As(err, &conflict) {
		t.Fatalf("another history: %v", err)
	}
	gets(t, s, names[0], segmentBytes(1, 0, 0), GetOptions{})
	gets(t, s, "00000002.history", []byte(history2), GetOptions{})
}

// A second cluster is refused before its first byte.
func TestPushOtherCluster(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := file.New(dir)
	p := newPGWAL(t)
	p.push(s, p.segments(1, 0, 1)...)
	before := listing(t, s)
	second := newPGWAL(t)
	b := segmentBytes(1, segmentSize, 0)
	b[24]++ // system identifier
	name := protocol.SegmentName(1, segmentSize, segmentSize)
	second.write(name, b)
	second.write(name+".partial", b)
	second.write("00000002.history", []byte(history2))
	for _, file := range []string{name, name + ".partial", "00000002.history"} {
		var refused *archive.IdentityError
		if _, err := Push(ctx, s, second.path(file), fast); !errors.As(err, &refused) {
			t.Fatalf("%s of another cluster: %v", file, err)
		}
	}
	if after := listing(t, s); after != before {
		t.Fatalf("the store held\n%s\nand holds\n%s", before, after)
	}
}

func listing(t *testing.T, s archive.Store) string {
	t.Helper()
	var names []string
	for info, err := range s.List(context.Background(), "", "") {
		must(t, err)
		names = append(names, info.Name)
	}
	return strings.Join(names, "\n")
}

// switched returns a segment whose WAL ends with a switch in the middle, or, unswitched, just ends there.
func switched(t *testing.T, start protocol.LSN, record bool) []byte {
	t.Helper()
	b := segmentBytes(1, start, 0)
	page := pageSize * 3
	clear(b[page:])
	h := wal.PageHeader{Version: wal.PG15, Timeline: 1, Addr: start + protocol.LSN(page)}
	rest := h.Append(nil)
	header := wal.Header{TotalLength: wal.RecordHeaderBytes, Info: 0x40, Prev: start + 40, Rmgr: wal.RmgrXLOG}
	if !record {
		header.Info = 0x20 // NOOP
	}
	switchRecord := header.Append(nil)
	wal.SetCRC(switchRecord)
	copy(b[page:], append(rest, switchRecord...))
	return b
}

func TestPushIncomplete(t *testing.T) {
	ctx, p := context.Background(), newPGWAL(t)
	start := protocol.LSN(segmentSize)
	name := protocol.SegmentName(1, start, segmentSize)
	good := segmentBytes(1, start, 0)
	for why, b := range map[string][]byte{
		"empty":               {},
		"short":               good[:segmentSize-1],
		"long":                append(bytes.Clone(good), 0),
		"no WAL":              bytes.Repeat([]byte("walproxy"), segmentSize/8),
		"zeros":               make([]byte, segmentSize),
		"another place":       segmentBytes(1, 2*start, 0),
		"a later timeline":    segmentBytes(2, start, 0),
		"recycled end":        append(bytes.Clone(good[:segmentSize-pageSize]), good[:pageSize]...),
		"zeros at its end":    append(bytes.Clone(good[:segmentSize/2]), make([]byte, segmentSize/2)...),
		"zeros, no switch":    switched(t, start, false),
		"a page in the midst": good[pageSize:],
	} {
		p.write(name, b)
		s := newStore(t)
		if _, err := Push(ctx, s, p.path(name), fast); !errors.Is(err, archive.ErrNotWAL) {
			t.Errorf("%s: %v", why, err)
		}
		if stored := listing(t, s); stored != "" {
			t.Errorf("%s: stored %s", why, stored)
		}
	}
	s := newStore(t)
	b := switched(t, start, true)
	p.write(name, b)
	p.push(s, name)
	gets(t, s, name, b, GetOptions{})

	p.segments(1, 0, 1)
	for file, content := range map[string]string{"00000002.history": "what?\n", "00000003.history": "", "x": "x", "000000010000000000000001.partial": "x"} {
		p.write(file, []byte(content))
		if _, err := Push(ctx, s, p.path(file), fast); !errors.Is(err, archive.ErrNotWAL) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := Push(ctx, s, p.path("000000010000000000000009"), fast); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	lonely := newPGWAL(t)
	lonely.write("00000002.history", []byte(history2))
	if _, err := Push(ctx, s, lonely.path("00000002.history"), fast); err == nil {
		t.Error("a history of nobody knows which cluster is taken")
	}
}
