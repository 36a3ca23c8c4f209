// Package storetest holds every store to what archive.Store says. Each implementation's tests run it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"walproxy/archive"
)

// Run tests a store. Open returns another handle of one store, which is empty at the first call.
func Run(t *testing.T, open func(t *testing.T) archive.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := open(t)
	empty(ctx, t, s)
	putGet(ctx, t, s)
	putTwice(ctx, t, s)
	list(ctx, t, s)
	remove(ctx, t, s)
	badNames(ctx, t, s)
	race(ctx, t, s, open(t))
	ends(t, s)
}

// content returns bytes that differ by seed.
func content(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = r.Read(b) // never fails
	return b
}

func put(ctx context.Context, s archive.Store, name string, b []byte) error {
	return s.Put(ctx, name, bytes.NewReader(b), int64(len(b)))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want an error of class %q", err, class)
	}
}

// names returns what is listed.
func names(ctx context.Context, t *testing.T, s archive.Store, prefix, after string) (all []string) {
	t.Helper()
	for info, err := range s.List(ctx, prefix, after) {
		must(t, err)
		all = append(all, fmt.Sprintf("%s %d", info.Name, info.Bytes))
	}
	return all
}

func empty(ctx context.Context, t *testing.T, s archive.Store) {
	if all := names(ctx, t, s, "", ""); len(all) > 0 {
		t.Fatalf("a new store lists %q", all)
	}
	_, err := s.Get(ctx, nil, "none", 0, 10)
	want(t, err, archive.ErrNotExist)
	_, err = s.Get(ctx, nil, "none/below", 5, 10)
	want(t, err, archive.ErrNotExist)
	must(t, s.Delete(ctx, "none"))
}

func putGet(ctx context.Context, t *testing.T, s archive.Store) {
	for _, size := range []int{0, 1, 1000, 1 << 20, 5<<20 + 7} {
		name := fmt.Sprintf("size/%d.x", size)
		b := content(uint64(size), size)
		must(t, put(ctx, s, name, b))
		for _, r := range [][2]int{{0, size}, {0, size + 100}, {size / 3, size / 3}, {size / 2, size}, {size, 10}, {size + 5, 10}, {0, 0}, {max(size-1, 0), 1}} {
			got, err := s.Get(ctx, []byte("before"), name, int64(r[0]), int64(r[1]))
			must(t, err)
			expected := append([]byte("before"), b[min(r[0], size):min(r[0]+r[1], size)]...)
			if !bytes.Equal(got, expected) {
				t.Fatalf("%s, %d bytes from %d on: got %d bytes, want %d, or others", name, r[1], r[0], len(got)-6, len(expected)-6)
			}
		}
	}
}

func putTwice(ctx context.Context, t *testing.T, s archive.Store) {
	first := content(1, 5000)
	must(t, put(ctx, s, "twice", first))
	want(t, put(ctx, s, "twice", content(2, 5000)), archive.ErrExists)
	want(t, put(ctx, s, "twice", first), archive.ErrExists)
	got, err := s.Get(ctx, nil, "twice", 0, 1<<20)
	must(t, err)
	if !bytes.Equal(got, first) {
		t.Fatal("an object changed")
	}
}

func list(ctx context.Context, t *testing.T, s archive.Store) {
	all := []string{"list-a", "list.b", "list/0/a", "list/0/b", "list/1-0", "list/1.0", "list/1/0", "list/10", "list0", "listA"}
	if !slices.IsSorted(all) {
		t.Fatal("the names are not in order")
	}
	for _, i := range rand.Perm(len(all)) {
		must(t, put(ctx, s, all[i], []byte(all[i])))
	}
	for _, prefix := range []string{"list", "list/", "list/1", "list/1/", "list/0/b", "nothing"} {
		for _, after := range append([]string{"", "list", "list/", "list/1", "list/0/aa", "z"}, all...) {
			var expected []string
			for _, name := range all {
				if strings.HasPrefix(name, prefix) && name > after {
					expected = append(expected, fmt.Sprintf("%s %d", name, len(name)))
				}
			}
			if got := names(ctx, t, s, prefix, after); !slices.Equal(got, expected) {
				t.Fatalf("list of %q behind %q:\n%q, want\n%q", prefix, after, got, expected)
			}
		}
	}
	for range s.List(ctx, "list", "") {
		break // no further call of yield
	}
}

func remove(ctx context.Context, t *testing.T, s archive.Store) {
	must(t, put(ctx, s, "gone/1", []byte("1")))
	must(t, put(ctx, s, "gone/2", []byte("2")))
	must(t, s.Delete(ctx, "gone/1"))
	must(t, s.Delete(ctx, "gone/1"))
	_, err := s.Get(ctx, nil, "gone/1", 0, 1)
	want(t, err, archive.ErrNotExist)
	if got := names(ctx, t, s, "gone/", ""); !slices.Equal(got, []string{"gone/2 1"}) {
		t.Fatalf("after a delete: %q", got)
	}
	must(t, put(ctx, s, "gone/1", []byte("again")))
}

func badNames(ctx context.Context, t *testing.T, s archive.Store) {
	for _, name := range []string{"", "/", "a/", "/a", "a//b", "../a", "a/../b", ".hidden", "a/.b", "a b", "a\x00", "ä"} {
		if put(ctx, s, name, nil) == nil {
			t.Fatalf("an object can be called %q", name)
		}
		if _, err := s.Get(ctx, nil, name, 0, 1); err == nil {
			t.Fatalf("an object called %q can be read", name)
		}
		if s.Delete(ctx, name) == nil {
			t.Fatalf("an object called %q can be deleted", name)
		}
	}
}

// race lets two handles put different contents under one name at the same time: one wins, and its content stays.
func race(ctx context.Context, t *testing.T, a, b archive.Store) {
	for round := range 8 {
		name := fmt.Sprintf("race/%d", round)
		var wait sync.WaitGroup
		var winner atomic.Int32
		for i, s := range []archive.Store{a, b, a, b} {
			wait.Go(func() {
				err := put(ctx, s, name, content(uint64(100+i), 300_000))
				switch {
				case err == nil && !winner.CompareAndSwap(0, int32(i+1)):
					t.Errorf("%s was put twice", name)
				case err != nil && !errors.Is(err, archive.ErrExists):
					t.Errorf("put %s: %v", name, err)
				}
			})
		}
		wait.Wait()
		got, err := a.Get(ctx, nil, name, 0, 1<<20)
		must(t, err)
		if w := winner.Load(); w == 0 || !bytes.Equal(got, content(uint64(99+w), 300_000)) {
			t.Fatalf("%s is not what the winner put", name)
		}
	}
}

// ends lets calls meet a context that is over.
func ends(t *testing.T, s archive.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	want(t, put(ctx, s, "late", []byte("late")), context.Canceled)
	_, err := s.Get(ctx, nil, "twice", 0, 1)
	want(t, err, context.Canceled)
	for _, err := range s.List(ctx, "", "") {
		want(t, err, context.Canceled)
	}
	want(t, s.Delete(ctx, "twice"), context.Canceled)
	_, err = s.Get(context.Background(), nil, "late", 0, 1)
	want(t, err, archive.ErrNotExist)
}
