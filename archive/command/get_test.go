package command

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/recompress"
)

func TestGetNotThere(t *testing.T) {
	ctx, p, s := context.Background(), newPGWAL(t), newStore(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "RECOVERYXLOG")
	// Nobody knows whether an empty store is the archive that was meant.
	if _, err := Get(ctx, s, "000000010000000000000000", path, GetOptions{}); !errors.Is(err, archive.ErrNoIdentity) || errors.Is(err, archive.ErrNotExist) {
		t.Fatalf("from an empty store: %v", err)
	}
	p.push(s, p.segments(1, 0, 1)...)
	p.segments(1, 5*segmentSize, 1)
	p.write("00000002.history", []byte("1\t0/700000\tx\n"))
	p.push(s, "00000002.history", protocol.SegmentName(1, 5*segmentSize, segmentSize))
	for _, name := range []string{
		"000000010000000000000006", "000000090000000000000000", "000000010000000000000000.partial", "00000003.history",
		"000000010000000000000000.00000028.backup", "000000010000000000FFFFFF", "nonsense", "",
		"000000020000000000000005", // before the timeline began: a server has no such segment
	} {
		if _, err := Get(ctx, s, name, path, GetOptions{}); !errors.Is(err, archive.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// A hole is not the end.
	var gap *archive.GapError
	_, err := Get(ctx, s, "000000010000000000000002", path, GetOptions{})
	if !errors.As(err, &gap) || *gap != (archive.GapError{Timeline: 1, From: 2 * segmentSize, To: 5 * segmentSize}) || errors.Is(err, archive.ErrNotExist) {
		t.Errorf("a hole: %v", err)
	}
	only(t, dir)
}

// A damaged object leaves nothing behind, and is not taken for the end of the archive.
func TestGetDamaged(t *testing.T) {
	p, dir := newPGWAL(t), t.TempDir()
	s := file.New(dir)
	names := p.segments(1, 0, 1)
	p.push(s, names...)
	object := filepath.Join(dir, filepath.FromSlash(archive.WALName(1, 0, segmentSize)))
	b, err := os.ReadFile(object)
	must(t, err)
	b[len(b)/2] ^= 4
	must(t, os.WriteFile(object, b, 0o600))
	out := t.TempDir()
	if _, err := Get(context.Background(), s, names[0], filepath.Join(out, "x"), GetOptions{}); !errors.Is(err, link.ErrCorrupt) || errors.Is(err, archive.ErrNotExist) {
		t.Fatalf("damaged: %v", err)
	}
	only(t, out)
}

// watched calls look before each request for content.
type watched struct {
	archive.Store
	look func()
}

func (w watched) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	w.look()
	return w.Store.Get(ctx, dst, name, offset, length)
}

// While a file is being written its path holds what it held before, also a segment whose object takes many requests, and after a
// failure too.
func TestGetIsAtomic(t *testing.T) {
	p, s := newPGWAL(t), newStore(t)
	const size = 32 << 20
	name := protocol.SegmentName(1, size, size)
	content := make([]byte, size)
	_, err := rand.NewChaCha8([32]byte{}).Read(content) // nothing of it compresses
	must(t, err)
	for at := protocol.LSN(0); at < size; at += pageSize {
		h := wal.PageHeader{Version: wal.PG15, Timeline: 1, Addr: size + at}
		if at == 0 {
			h.Flags, h.SystemID, h.SegmentSize, h.PageSize = wal.LongHeader, systemID, size, pageSize
		}
		h.Append(content[:at]) // over what is there
	}
	p.write(name, content)
	p.push(s, name)
	path := filepath.Join(t.TempDir(), "RECOVERYXLOG")
	before := []byte("before")
	looks := 0
	failing := errors.New("the store is gone")
	w := watched{Store: s}
	w.look = func() {
		looks++
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, before) {
			t.Errorf("request %d: the path holds %d bytes, %v", looks, len(b), err)
		}
	}
	must(t, os.WriteFile(path, before, 0o600))
	_, err = Get(context.Background(), w, name, path, GetOptions{})
	must(t, err)
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes came out, %v", len(b), err)
	}
	requests := looks
	if requests < 5 {
		t.Errorf("only %d requests", requests)
	}
	must(t, os.WriteFile(path, before, 0o600))
	for _, failAt := range []int{2, requests} {
		looks = 0
		f := failingStore{Store: w, failAt: failAt, err: failing}
		if _, err := Get(context.Background(), &f, name, path, GetOptions{}); !errors.Is(err, failing) {
			t.Errorf("request %d fails: %v", failAt, err)
		}
		only(t, filepath.Dir(path), "RECOVERYXLOG")
		w.look()
	}
}

// failingStore fails at one request for content.
type failingStore struct {
	archive.Store
	gets, failAt int
	err          error
}

func (f *failingStore) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	if f.gets++; f.gets == f.failAt {
		return dst, f.err
	}
	return f.Store.Get(ctx, dst, name, offset, length)
}

// node stores WAL as a node does: windows of a timeline, from start up to end.
func node(t *testing.T, s archive.Store, tli protocol.Timeline, start protocol.LSN, wal []byte) {
	t.Helper()
	a, err := archive.Create(context.Background(), s, archive.Identity{SystemID: systemID, Major: 15, SegmentSize: segmentSize, WALBlockSize: pageSize})
	must(t, err)
	sealer, err := recompress.NewSealer(fast)
	must(t, err)
	h := link.WindowHeader{Kind: link.WindowLive, SystemID: systemID, Timeline: tli, SegmentSize: segmentSize, WALBlockSize: pageSize,
		ResetDistance: segmentSize, Start: start}
	w, _, err := sealer.Seal(nil, h, rawFrame(h, wal))
	must(t, err)
	var b archive.Builder
	b.Begin(a.Identity())
	must(t, b.Add(w))
	o, err := b.Finish()
	must(t, err)
	_, err = a.Put(context.Background(), o)
	must(t, err)
	must(t, b.Close())
}

// The first segment of a timeline is the same from a server, which copies its parent's part, and from a node, which has the two
// parts on two timelines. Both may archive it.
func TestGetFork(t *testing.T) {
	fork := protocol.LSN(segmentSize + 3*pageSize + 1234)
	name := protocol.SegmentName(2, fork, segmentSize)
	parent, want := segmentBytes(1, segmentSize, 0), segmentBytes(2, segmentSize, fork)
	offset := int(fork - segmentSize)
	if !bytes.Equal(parent[:offset], want[:offset]) {
		t.Fatal("the segments differ before the fork")
	}
	history := []byte("1\t" + fork.String() + "\tx\n")
	p := newPGWAL(t)
	p.write(name, want)
	p.write("00000002.history", history)

	s := newStore(t)
	node(t, s, 1, segmentSize, parent[:offset])
	node(t, s, 2, fork, want[offset:])
	p.push(s, "00000002.history")
	gets(t, s, name, want, GetOptions{})
	p.push(s, name) // beside
	gets(t, s, name, want, GetOptions{})

	pushed := newStore(t)
	p.push(pushed, name) // alone
	gets(t, pushed, name, want, GetOptions{})

	// Timeline 1 ends at the fork: zeros follow.
	got := gets(t, s, protocol.SegmentName(1, fork, segmentSize), append(bytes.Clone(parent[:offset]), make([]byte, segmentSize-offset)...), GetOptions{})
	if got.End != fork {
		t.Errorf("it ends at %s, want %s", got.End, fork)
	}
}

// Where the archive ends inside of a segment, what is there comes out; such a segment is not read ahead and not pushed.
func TestGetTail(t *testing.T) {
	ctx, p, s := context.Background(), newPGWAL(t), newStore(t)
	names := p.segments(1, 0, 1)
	p.push(s, names...)
	tail := segmentBytes(1, segmentSize, 0)[:300_001]
	node(t, s, 1, segmentSize, tail)
	name := protocol.SegmentName(1, segmentSize, segmentSize)
	want := append(bytes.Clone(tail), make([]byte, segmentSize-len(tail))...)
	if got := gets(t, s, name, want, GetOptions{}); got.End != segmentSize+300_001 {
		t.Errorf("it ends at %s", got.End)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	must(t, ReadAhead(ctx, s, cache, names[0], 5))
	only(t, cache, "lock")
	p.write(name, want)
	if _, err := Push(ctx, s, p.path(name), fast); !errors.Is(err, archive.ErrNotWAL) {
		t.Errorf("a part of a segment was pushed: %v", err)
	}
}

func TestReadAhead(t *testing.T) {
	ctx, p, s := context.Background(), newPGWAL(t), newStore(t)
	names := p.segments(1, 0, 6)
	p.push(s, names...)
	cache := filepath.Join(t.TempDir(), "cache")
	want := func(i int) []byte { return segmentBytes(1, protocol.LSN(i*segmentSize), 0) }
	asked := []string{}
	o := GetOptions{Cache: cache, Ahead: 3, ReadAhead: func(file string) error { asked = append(asked, file); return nil }}
	gets(t, s, names[0], want(0), o)
	must(t, os.MkdirAll(cache, 0o700))
	for _, stale := range []string{names[0], names[5], names[4] + ".part", names[4] + ".walproxy-whole"} {
		must(t, os.WriteFile(filepath.Join(cache, stale), []byte("stale"), 0o600))
	}
	must(t, ReadAhead(ctx, s, cache, names[0], 3))
	only(t, cache, append(slices.Clone(names[1:4]), "lock")...)
	none := file.New(t.TempDir()) // what is in the cache needs no store
	for i := 1; i < 4; i++ {
		if got := gets(t, none, names[i], want(i), o); !got.Cached {
			t.Errorf("%s was not taken from the cache", names[i])
		}
	}
	only(t, cache, "lock")
	must(t, ReadAhead(ctx, s, cache, names[3], 9)) // over the end
	only(t, cache, append(slices.Clone(names[4:]), "lock")...)
	if !slices.Equal(asked, []string{names[0], names[2], names[3]}) { // two of three are enough
		t.Errorf("reading ahead was asked for behind %v", asked)
	}
	// Only one process reads ahead.
	lock, err := lockFile(filepath.Join(cache, lockName))
	must(t, err)
	must(t, ReadAhead(ctx, s, cache, names[0], 1))
	only(t, cache, append(slices.Clone(names[4:]), "lock")...)
	must(t, lock.Close())
}

// Get waits for a segment that is being read ahead, and takes over if that fails.
func TestGetWaitsForReadAhead(t *testing.T) {
	p, s := newPGWAL(t), newStore(t)
	names := p.segments(1, 0, 2)
	p.push(s, names...)
	for _, completes := range []bool{true, false} {
		cache := t.TempDir()
		part, err := lockFile(filepath.Join(cache, names[1]+workSuffix))
		must(t, err)
		done := make(chan Got)
		go func() {
			done <- gets(t, s, names[1], segmentBytes(1, segmentSize, 0), GetOptions{Cache: cache})
		}()
		select {
		case <-done:
			t.Fatal("it did not wait")
		case <-time.After(50 * time.Millisecond): // it can only be seen not to return
		}
		if completes {
			must(t, os.WriteFile(filepath.Join(cache, names[1]), segmentBytes(1, segmentSize, 0), 0o600))
		}
		must(t, os.Remove(part.Name()))
		must(t, part.Close())
		if got := <-done; got.Cached != completes {
			t.Errorf("from the cache: %v, want %v", got.Cached, completes)
		}
	}
}

// A process that is killed leaves nothing that is taken for a segment; its leftovers go in time.
func TestGetLeftovers(t *testing.T) {
	p, s := newPGWAL(t), newStore(t)
	names := p.segments(1, 0, 1)
	p.push(s, names...)
	dir := t.TempDir()
	old, young := filepath.Join(dir, "x"+tempMark+"1"), filepath.Join(dir, "x"+tempMark+"2")
	for _, name := range []string{old, young} {
		must(t, os.WriteFile(name, nil, 0o600))
	}
	must(t, os.Chtimes(old, time.Time{}, time.Now().Add(-2*leftover)))
	_, err := Get(context.Background(), s, names[0], filepath.Join(dir, "x"), GetOptions{})
	must(t, err)
	only(t, dir, "x", filepath.Base(young))
}
