package archive_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/recompress"
)

// Any range comes out of any layout of objects: whole cells, parts of them, overlapping, of any codec.
func TestReadAnyRange(t *testing.T) {
	rnd := random(t)
	a := create(t)
	put(t, a, 1, 0, segment, segment, 2*segment) // two cells
	put(t, a, 1, 2*segment, 2*segment+distance, 2*segment+distance, 3*segment)
	put(t, a, 1, 3*segment, 3*segment+1000, 3*segment, 3*segment+distance, 3*segment+distance, 3*segment+distance+99999, 3*segment+distance, 4*segment-5)
	end := protocol.LSN(4*segment - 5)
	all := wal(1, 0, end)
	r := a.NewReader()
	same(t, r, 1, 0, end, all)
	for range 100 {
		from := protocol.LSN(rnd.Uint64N(uint64(end)))
		to := min(from+protocol.LSN(rnd.Uint64N(1<<(1+rnd.UintN(23)))), end)
		same(t, r, 1, from, to, all[from:to])
	}
	got, err := read(r, 1, end-10, end+10)
	var missing *archive.MissingError
	if !errors.As(err, &missing) || missing.LSN != end || !errors.Is(err, archive.ErrNotExist) || !bytes.Equal(got, all[end-10:]) {
		t.Fatalf("over the end: %d bytes, %v", len(got), err)
	}
}

func TestReadGap(t *testing.T) {
	a := create(t)
	put(t, a, 1, 0, segment, 2*segment+100, 3*segment)
	got, err := read(a.NewReader(), 1, 0, 3*segment)
	var gap *archive.GapError
	if !errors.As(err, &gap) || *gap != (archive.GapError{Timeline: 1, From: segment, To: 2*segment + 100}) || errors.Is(err, archive.ErrNotExist) {
		t.Fatalf("over a gap: %v", err)
	}
	if !bytes.Equal(got, wal(1, 0, segment)) {
		t.Fatal("what is before the gap did not come out")
	}
	_, err = read(a.NewReader(), 7, 0, 1)
	var missing *archive.MissingError
	if !errors.As(err, &missing) || *missing != (archive.MissingError{Timeline: 7, LSN: 0}) {
		t.Fatalf("a timeline that is not there: %v", err)
	}
}

// A timeline's WAL from before its fork is its ancestors', unless its own objects have it.
func TestReadOverForks(t *testing.T) {
	a := create(t)
	const first, second = protocol.LSN(1 << 20), protocol.LSN(3<<20 + 500)
	put(t, a, 1, 0, segment)
	put(t, a, 2, first, segment, segment, second)
	put(t, a, 3, second, 2*segment)
	putHistory(t, a, 2, first)
	putHistory(t, a, 3, second)
	want := append(append(wal(1, 0, first), wal(2, first, second)...), wal(3, second, 2*segment)...)
	r := a.NewReader()
	same(t, r, 3, 0, 2*segment, want)
	same(t, r, 2, 0, second, want[:second])
	same(t, r, 1, 0, segment, wal(1, 0, segment)) // its own, beyond the fork too
	same(t, r, 3, second-1, second+1, want[second-1:second+1])

	// The parent's part is gone: a gap, since there is more behind.
	must(t, a.Store().Delete(context.Background(), archive.WALName(2, first, segment)))
	_, err := read(a.NewReader(), 3, 0, 2*segment)
	var gap *archive.GapError
	if !errors.As(err, &gap) || gap.Timeline != 2 || gap.From != first || gap.To != segment {
		t.Fatalf("without the middle of timeline 2: %v", err)
	}
	must(t, a.Store().Delete(context.Background(), archive.WALName(1, 0, segment)))
	_, err = read(a.NewReader(), 3, 0, 2*segment)
	if !errors.As(err, &gap) || gap.Timeline != 1 || gap.From != 0 {
		t.Fatalf("without timeline 1: %v", err)
	}
}

// A pushed first segment of a timeline holds its parent's part; only that is needed then.
func TestReadCopiedHead(t *testing.T) {
	a := create(t)
	put(t, a, 2, 0, segment)
	same(t, a.NewReader(), 2, 0, segment, wal(2, 0, segment))
}

// An object that cannot be read is no loss if others hold the same, and else named.
func TestReadAroundDamage(t *testing.T) {
	ctx := context.Background()
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	put(t, a, 1, 0, segment, 0, distance, distance, segment)
	whole := store.objects[archive.WALName(1, 0, segment)]
	h, err := archive.DecodeHeader(whole)
	must(t, err)
	whole[h.Windows[1].Offset+int64(h.Windows[1].Bytes)/2]++
	same(t, a.NewReader(), 1, 0, segment, wal(1, 0, segment))
	delete(store.objects, archive.WALName(1, distance, segment))
	got, err := read(a.NewReader(), 1, 0, segment)
	var corrupt *archive.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Name != archive.WALName(1, 0, segment) || corrupt.LSN < distance {
		t.Fatalf("damage: %v", err)
	}
	if len(got) < distance || !bytes.HasPrefix(wal(1, 0, segment), got) {
		t.Fatalf("%d bytes came out", len(got))
	}
}

// Windows that are decoded side by side come out in order. With damage in any of them, all before its frame comes out and nothing
// behind it; an error of whoever takes the WAL ends it there.
func TestReadWindowsAtOnce(t *testing.T) {
	const windows = 7
	ctx := context.Background()
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	put(t, a, 1, 0, windows*distance)
	name := archive.WALName(1, 0, windows*distance)
	all, whole := wal(1, 0, windows*distance), store.objects[name]
	h, err := archive.DecodeHeader(whole)
	must(t, err)
	for i := range protocol.LSN(windows) {
		damaged := bytes.Clone(whole)
		damaged[h.Windows[i].Offset+int64(h.Windows[i].Bytes)/2]++
		store.objects[name] = damaged
		got, err := read(a.NewReader(), 1, 100, windows*distance)
		var corrupt *archive.CorruptError
		if !errors.As(err, &corrupt) || corrupt.LSN != 100+protocol.LSN(len(got)) || corrupt.LSN < i*distance || corrupt.LSN >= (i+1)*distance {
			t.Errorf("damage in window %d: %d bytes, %v", i, len(got), err)
		}
		if !bytes.HasPrefix(all[100:], got) {
			t.Errorf("damage in window %d: other WAL came out", i)
		}
	}
	store.objects[name] = whole
	enough := errors.New("enough")
	var got []byte
	err = a.NewReader().Read(ctx, 1, 0, windows*distance, func(_ protocol.LSN, wal []byte) error {
		if got = append(got, wal...); len(got) >= 3*distance {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || len(got) > 4*distance || !bytes.HasPrefix(all, got) {
		t.Errorf("an error of the taker after %d bytes: %v", len(got), err)
	}
}

// An object that a larger one replaces while it is read is no error.
func TestReadWhileReplaced(t *testing.T) {
	ctx := context.Background()
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	put(t, a, 1, 0, distance)
	small := archive.WALName(1, 0, distance)
	replaced := false
	store.onGet = func(name string) {
		if name == small && !replaced {
			replaced = true
			put(t, a, 1, 0, segment)
			delete(store.objects, small)
		}
	}
	same(t, a.NewReader(), 1, 0, distance, wal(1, 0, distance))
	if !replaced {
		t.Fatal("the object was not read")
	}
}

// Requests: one for a segment that is one object, one for what a run of objects is, a list only where the layout changes; a short
// range of a large object takes its head and one window.
func TestRequests(t *testing.T) {
	ctx := context.Background()
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	for i := range protocol.LSN(4) {
		put(t, a, 1, i*segment, (i+1)*segment)
	}
	r := a.NewReader()
	store.gets, store.lists = 0, 0
	same(t, r, 1, 0, 4*segment, wal(1, 0, 4*segment))
	if store.gets != 4 || store.lists != 0 {
		t.Errorf("4 segments took %d gets and %d lists", store.gets, store.lists)
	}
	large := protocol.LSN(64 << 20)
	_, err = a.Put(ctx, object(t, 1, large, large+16*distance, recompress.None))
	must(t, err)
	store.gets, store.bytes = 0, 0
	same(t, a.NewReader(), 1, large+5*distance+100, large+5*distance+200, wal(1, large+5*distance+100, large+5*distance+200))
	if limit := int64(archive.MaxHeadBytes + distance + 4096); store.gets != 3 || store.bytes > limit { // the first get guesses another object
		t.Errorf("100 bytes took %d gets and %d bytes", store.gets, store.bytes)
	}
}
