package archive_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"reflect"
	"testing"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/recompress"
)

// content returns the bytes of an object.
func content(t testing.TB, o *archive.Object) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(o, 0, o.Header.Bytes))
	must(t, err)
	if int64(len(b)) != o.Header.Bytes {
		t.Fatalf("%d bytes, the header says %d", len(b), o.Header.Bytes)
	}
	return b
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, r := range [][2]protocol.LSN{{0, distance}, {5 << 20, 5<<20 + 12345}, {7<<20 + 77, 12 << 20}} {
		o := object(t, 3, r[0], r[1], recompress.Zstd)
		b := content(t, o)
		h, err := archive.DecodeHeader(b)
		must(t, err)
		if !reflect.DeepEqual(h, o.Header) {
			t.Fatalf("decoded %+v, was %+v", h, o.Header)
		}
		if !bytes.Equal(h.Append(nil), b[:h.HeadBytes()]) {
			t.Fatal("encoded again it is another header")
		}
		if h.RawSum != link.Checksum(wal(3, r[0], r[1])) {
			t.Fatal("the raw checksum, put together from frames, is not that of the WAL")
		}
		if span, ok := archive.ParseWALName(h.Name()); !ok || span != h.Span {
			t.Fatalf("the name %s says %+v", h.Name(), span)
		}
		for n := range h.HeadBytes() {
			if _, err := archive.DecodeHeader(b[:n]); !errors.Is(err, link.ErrShort) {
				t.Fatalf("the first %d bytes of a header: %v", n, err)
			}
		}
	}
}

// Whatever bit is flipped, an object is refused or yields the WAL that was put into it.
func TestObjectBitFlips(t *testing.T) {
	ctx, rnd := context.Background(), random(t)
	from, to := protocol.LSN(5<<20-70000), protocol.LSN(5<<20+70000)
	o := object(t, 1, from, to, recompress.Zstd)
	good, want := content(t, o), wal(1, from, to)
	head := o.Header.HeadBytes()
	flips := make([]int, 0, head*8+600)
	for i := range head * 8 {
		flips = append(flips, i)
	}
	for range 600 {
		flips = append(flips, head*8+rnd.IntN((len(good)-head)*8))
	}
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	refused := 0
	for _, bit := range flips {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		store.objects[o.Header.Name()] = bad
		got, err := read(a.NewReader(), 1, from, to)
		if !bytes.HasPrefix(want, got) {
			t.Fatalf("bit %d: other WAL came out", bit)
		}
		if err == nil && len(got) != len(want) {
			t.Fatalf("bit %d: %d bytes of WAL and no error", bit, len(got))
		}
		if err != nil {
			refused++
		}
		var version *archive.VersionError
		var linkVersion *link.VersionError
		if err != nil && !errors.Is(err, link.ErrCorrupt) && !errors.As(err, &version) && !errors.As(err, &linkVersion) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	if refused < len(flips)*9/10 {
		t.Errorf("only %d of %d flipped bits were noticed", refused, len(flips))
	}
}

func TestTruncatedObject(t *testing.T) {
	ctx := context.Background()
	o := object(t, 1, 0, 2<<20, recompress.Zstd)
	good := content(t, o)
	store := &memory{objects: map[string][]byte{}}
	a, err := archive.Create(ctx, store, identity)
	must(t, err)
	for n := 0; n < len(good); n += 4999 {
		store.objects[o.Header.Name()] = good[:n]
		got, err := read(a.NewReader(), 1, 0, 2<<20)
		if !errors.Is(err, link.ErrCorrupt) || !bytes.HasPrefix(wal(1, 0, 2<<20), got) {
			t.Fatalf("an object cut at byte %d: %d bytes, %v", n, len(got), err)
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	var b archive.Builder
	defer func() { must(t, b.Close()) }()
	first := window(t, 1, 0, wal(1, 0, distance), recompress.Zstd, 0)
	for name, bad := range map[string][]byte{
		"a gap":            window(t, 1, 2*distance, wal(1, 2*distance, 3*distance), recompress.Zstd, 0),
		"the same again":   first,
		"another timeline": window(t, 2, distance, wal(2, distance, 2*distance), recompress.Zstd, 0),
		"half a window":    first[:len(first)/2],
		"nothing":          nil,
	} {
		b.Begin(identity)
		must(t, b.Add(first))
		if b.Add(bad) == nil {
			t.Errorf("%s is taken", name)
		}
		must(t, b.Add(window(t, 1, distance, wal(1, distance, 2*distance), recompress.Zstd, 0))) // nothing has changed
	}
	other := identity
	other.SystemID++
	b.Begin(other)
	var refused *archive.IdentityError
	if err := b.Add(first); !errors.As(err, &refused) {
		t.Errorf("another cluster's window: %v", err)
	}
	if _, err := b.Finish(); err == nil {
		t.Error("an object without a window")
	}
}

// What does not fit into memory lies in a file, and comes out as it went in; a builder may be used again.
func TestBuilderSpills(t *testing.T) {
	var b archive.Builder
	defer func() { must(t, b.Close()) }()
	for _, windows := range []int{24, 3, 20} {
		b.Begin(identity)
		var want []byte
		for i := range windows {
			start := protocol.LSN(i) * distance
			w := window(t, 1, start, wal(1, start, start+distance), recompress.None, 0) // larger than the memory in all
			must(t, b.Add(w))
			want = append(want, w...)
		}
		o, err := b.Finish()
		must(t, err)
		if !bytes.Equal(content(t, o)[o.Header.HeadBytes():], want) {
			t.Fatalf("%d windows came out differently", windows)
		}
	}
}

func TestPutAgain(t *testing.T) {
	ctx, a := context.Background(), create(t)
	put(t, a, 1, 0, segment)
	// The same WAL coded otherwise.
	for _, codec := range []recompress.Codec{recompress.Zstd, recompress.None, recompress.Model} {
		if existed, err := a.Put(ctx, object(t, 1, 0, segment, codec)); err != nil || !existed {
			t.Fatalf("the same WAL as %s: existed %v, %v", codec, existed, err)
		}
	}
	// Other WAL: one byte.
	raw := wal(1, 0, segment)
	raw[distance+777]++
	var b archive.Builder
	defer func() { must(t, b.Close()) }()
	b.Begin(identity)
	must(t, b.Add(window(t, 1, 0, raw[:distance], recompress.Zstd, 0)))
	must(t, b.Add(window(t, 1, distance, raw[distance:], recompress.Zstd, 0)))
	o, err := b.Finish()
	must(t, err)
	var conflict *archive.ConflictError
	if _, err := a.Put(ctx, o); !errors.As(err, &conflict) || conflict.LSN != distance+777 || conflict.Timeline != 1 {
		t.Fatalf("other WAL: %v", err)
	}
	same(t, a.NewReader(), 1, 0, segment, wal(1, 0, segment))
}

func TestPutFile(t *testing.T) {
	ctx, a := context.Background(), create(t)
	file := func(name, content string) archive.File {
		return archive.File{Name: name, Content: bytes.NewReader([]byte(content)), Bytes: int64(len(content))}
	}
	for _, name := range []string{"00000002.history", "000000010000000000000002.00000028.backup", "000000010000000000000002.partial"} {
		if existed, err := a.PutFile(ctx, file(name, "content")); err != nil || existed {
			t.Fatalf("%s: existed %v, %v", name, existed, err)
		}
		if existed, err := a.PutFile(ctx, file(name, "content")); err != nil || !existed {
			t.Fatalf("%s again: existed %v, %v", name, existed, err)
		}
		for _, other := range []string{"Content", "conten", "content!", ""} {
			var conflict *archive.ConflictError
			if _, err := a.PutFile(ctx, file(name, other)); !errors.As(err, &conflict) {
				t.Fatalf("%s with the content %q: %v", name, other, err)
			}
		}
	}
	for _, name := range []string{"", "000000010000000000000002", "x.history", "../00000002.history", "00000002.history/x", "00000002.HISTORY"} {
		if _, err := a.PutFile(ctx, file(name, "x")); !errors.Is(err, archive.ErrNotWAL) {
			t.Errorf("a file called %q: %v", name, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	ctx, store := context.Background(), file.New(t.TempDir())
	if _, err := archive.Open(ctx, store); !errors.Is(err, archive.ErrNoIdentity) {
		t.Fatalf("an empty store: %v", err)
	}
	for range 2 {
		a, err := archive.Create(ctx, store, identity)
		must(t, err)
		if a.Identity() != identity {
			t.Fatalf("it is %s", a.Identity())
		}
	}
	others := []archive.Identity{identity, identity, identity, identity}
	others[0].SystemID++
	others[1].Major++
	others[2].SegmentSize *= 2
	others[3].WALBlockSize *= 2
	for _, other := range others {
		var refused *archive.IdentityError
		if _, err := archive.Create(ctx, store, other); !errors.As(err, &refused) {
			t.Errorf("cluster %s: %v", other, err)
		}
	}
	a, err := archive.Open(ctx, store)
	must(t, err)
	if a.Identity() != identity {
		t.Fatal("the identity changed")
	}
	if _, err := archive.Create(ctx, store, archive.Identity{}); err == nil {
		t.Error("an archive of no cluster")
	}
}

// replacing is a store that does not keep what is there.
type replacing struct{ memory }

func (r *replacing) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	delete(r.objects, name)
	return r.memory.Put(ctx, name, body, size)
}

func TestStoreThatReplaces(t *testing.T) {
	_, err := archive.Create(context.Background(), &replacing{memory{objects: map[string][]byte{}}}, identity)
	if !errors.Is(err, archive.ErrReplaces) {
		t.Fatalf("a store that replaces objects: %v", err)
	}
}
