package encrypted

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"walproxy/archive"
	"walproxy/archive/file"
	"walproxy/archive/storetest"
	"walproxy/protocol/link"
)

// keyFile writes new keys into a file.
func keyFile(t *testing.T, more ...string) (name, key string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	name, content := filepath.Join(t.TempDir(), "key"), "# created today\n"+identity.String()+"\n"
	for _, k := range more {
		content += k + "\n"
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name, identity.String()
}

func open(t *testing.T, dir, key string) *Store {
	t.Helper()
	s, err := New(file.New(dir), key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	dir, key := t.TempDir(), ""
	key, _ = keyFile(t)
	storetest.Run(t, func(t *testing.T) archive.Store { return open(t, dir, key) })
}

// Any range comes back, of objects whose ends lie everywhere around the edges of chunks. Nothing of the content can be seen, and
// every bit that is changed is found.
func TestRanges(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	key, _ := keyFile(t)
	s := open(t, dir, key)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, 5<<20 + 17} {
		content := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
		name := "o/" + string(rune('a'+size%26)) + filepath.Base(t.TempDir())
		if err := s.Put(ctx, name, bytes.NewReader(content), int64(size)); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			from := r.IntN(size + 2)
			length := r.IntN(size + 100)
			got, err := s.Get(ctx, nil, name, int64(from), int64(length))
			want := content[min(from, size):min(from+length, size)]
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %d from %d on: %d bytes, %v", size, length, from, len(got), err)
			}
		}
		path := filepath.Join(dir, name)
		stored, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(stored, []byte("0123456789")) || s.encryptedBytes(int64(size)) != int64(len(stored)) || s.plainBytes(int64(len(stored))) != int64(size) {
			t.Errorf("%d bytes are stored as %d", size, len(stored))
		}
		for range 10 {
			changed, i := bytes.Clone(stored), r.IntN(len(stored))
			changed[i] ^= 1 << r.IntN(8)
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Get(ctx, nil, name, 0, int64(size)+1); err == nil {
				t.Errorf("%d bytes with byte %d changed: %d bytes, the same: %v", size, i, len(got), bytes.Equal(got, content))
			}
		}
	}
}

func TestKeys(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	old, oldKey := keyFile(t)
	if err := open(t, dir, old).Put(ctx, "x", bytes.NewReader([]byte("hello")), 5); err != nil {
		t.Fatal(err)
	}
	next, _ := keyFile(t, oldKey)
	if got, err := open(t, dir, next).Get(ctx, nil, "x", 0, 9); err != nil || string(got) != "hello" {
		t.Errorf("a new key in front of the old one: %q, %v", got, err)
	}
	other, _ := keyFile(t)
	if _, err := open(t, dir, other).Get(ctx, nil, "x", 0, 9); err == nil || errors.Is(err, link.ErrCorrupt) || errors.Is(err, archive.ErrNotExist) {
		t.Errorf("another key: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("AGE-SECRET-KEY-1NONSENSE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(file.New(dir), bad); err == nil || bytes.Contains([]byte(err.Error()), []byte("NONSENSE")) {
		t.Errorf("a bad key file: %v", err)
	}
}
