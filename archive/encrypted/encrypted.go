// Package encrypted keeps an archive encrypted in a store, by age (age-encryption.org/v1): each object is an age file, which its
// 64 KiB chunks let read by range. Names and lengths can be seen.
package encrypted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"filippo.io/age"

	"walproxy/archive"
)

// The payload of an age file: a nonce, then chunks of plaintext, each with a tag behind it; the last one may be shorter.
const (
	nonceBytes = 16
	chunkBytes = 64 << 10
	tagBytes   = 16

	// headBytes is more than the header and the nonce have, whatever the key.
	headBytes = 4 << 10
	// memoryBytes is how much of an encrypted object is held in memory; larger ones go into a temporary file without a name.
	memoryBytes = 32 << 20
)

// Store encrypts what goes into another store. It implements archive.Store.
type Store struct {
	archive.Store
	identities []age.Identity
	recipient  age.Recipient // of the first identity
	header     int64         // bytes of a header for it
}

// New returns a store that encrypts with the first key of a key file, as age-keygen writes it, and decrypts with any of them.
func New(inner archive.Store, keyFile string) (*Store, error) {
	f, err := os.Open(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	identities, err := age.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("read key file %s: %w", keyFile, errors.New("want secret keys as age-keygen writes them")) // err may show a part of one
	}
	s := &Store{Store: inner, identities: identities}
	switch first := identities[0].(type) {
	case *age.X25519Identity:
		s.recipient = first.Recipient()
	case *age.HybridIdentity:
		s.recipient = first.Recipient()
	default:
		return nil, fmt.Errorf("read key file %s: the first key is of a kind that cannot encrypt", keyFile)
	}
	var empty bytes.Buffer
	if err := encrypt(&empty, bytes.NewReader(nil), s.recipient); err != nil {
		return nil, err
	}
	s.header = int64(empty.Len()) - nonceBytes - tagBytes
	return s, nil
}

func encrypt(dst io.Writer, src io.Reader, to age.Recipient) error {
	w, err := age.Encrypt(dst, to)
	if err == nil {
		_, err = io.Copy(w, src)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	return nil
}

// encryptedBytes returns how much of an object precedes the end of the plaintext's first n bytes and their tag.
func (s *Store) encryptedBytes(n int64) int64 {
	chunks := (n + chunkBytes - 1) / chunkBytes
	return s.header + nonceBytes + n + max(chunks, 1)*tagBytes
}

// plainBytes is the inverse of encryptedBytes for whole objects.
func (s *Store) plainBytes(n int64) int64 {
	payload := n - s.header - nonceBytes
	chunks := (payload + chunkBytes + tagBytes - 1) / (chunkBytes + tagBytes)
	return max(0, payload-chunks*tagBytes)
}

// Put implements archive.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReaderAt, size int64) (err error) {
	plain := io.NewSectionReader(body, 0, size)
	if s.encryptedBytes(size) <= memoryBytes {
		var b bytes.Buffer
		if err := encrypt(&b, plain, s.recipient); err != nil {
			return err
		}
		return s.Store.Put(ctx, name, bytes.NewReader(b.Bytes()), int64(b.Len()))
	}
	temp, err := os.CreateTemp("", "walproxy-encrypted-*")
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	defer func() { err = errors.Join(err, temp.Close()) }()
	if err := os.Remove(temp.Name()); err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	if err := encrypt(temp, plain, s.recipient); err != nil {
		return err
	}
	length, err := temp.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	return s.Store.Put(ctx, name, temp, length)
}

// Get implements archive.Store. It takes one request if the object ends within the range or a little behind it, and else a listing and
// up to three requests: header, range, and the last chunk, which says that the object was not cut off.
func (s *Store) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	if offset < 0 || length < 0 {
		return dst, nil
	}
	object := ranges{fetch: func(dst []byte, offset, length int64) ([]byte, error) {
		return s.Store.Get(ctx, dst, name, offset, length)
	}}
	first := offset / chunkBytes * (chunkBytes + tagBytes)
	if first < memoryBytes/16 {
		first = 0
	}
	last := s.encryptedBytes(offset+length) + headBytes
	if err := object.load(first, last-first); err != nil {
		return dst, err
	}
	size := first + int64(len(object.parts[0].bytes))
	if size == last || len(object.parts[0].bytes) == 0 {
		var err error
		if size, err = s.size(ctx, name); err != nil {
			return dst, err
		}
	}
	plain, plainSize, err := age.DecryptReaderAt(&object, size, s.identities...)
	if err != nil {
		return dst, object.failed(name, err)
	}
	length = min(length, plainSize-offset)
	if length <= 0 {
		return dst, nil
	}
	from := len(dst)
	dst = append(dst, make([]byte, length)...)
	if n, err := plain.ReadAt(dst[from:], offset); n < int(length) {
		return dst[:from], object.failed(name, err)
	}
	return dst, nil
}

// size asks how long an encrypted object is.
func (s *Store) size(ctx context.Context, name string) (int64, error) {
	for info, err := range s.Store.List(ctx, name, "") {
		if err != nil {
			return 0, err
		}
		if info.Name == name {
			return info.Bytes, nil
		}
		break
	}
	return 0, &archive.StoreError{Op: "get", Name: name, Err: archive.ErrNotExist}
}

// List implements archive.Store. Lengths are those of the plaintext, if the object is encrypted by a key of the first one's kind.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	return func(yield func(archive.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, after) {
			info.Bytes = s.plainBytes(info.Bytes)
			if !yield(info, err) {
				return
			}
		}
	}
}

// ranges is an object of which parts are fetched as they are read.
type ranges struct {
	fetch func(dst []byte, offset, length int64) ([]byte, error)
	parts []part
	err   error // of the store
}

type part struct {
	offset int64
	bytes  []byte
}

func (r *ranges) load(offset, length int64) error {
	b, err := r.fetch(nil, offset, length)
	if err != nil {
		r.err = err
		return err
	}
	r.parts = append(r.parts, part{offset, b})
	return nil
}

// ReadAt implements io.ReaderAt.
func (r *ranges) ReadAt(p []byte, offset int64) (int, error) {
	for try := 0; ; try++ {
		for _, part := range r.parts {
			if end := part.offset + int64(len(part.bytes)); offset >= part.offset && offset+int64(len(p)) <= end {
				return copy(p, part.bytes[offset-part.offset:]), nil
			}
		}
		if try > 0 {
			return 0, io.ErrUnexpectedEOF
		}
		if err := r.load(offset, max(int64(len(p)), headBytes)); err != nil {
			return 0, err
		}
		last := r.parts[len(r.parts)-1]
		if n := copy(p, last.bytes); n < len(p) { // the end
			return n, io.EOF
		}
	}
}

// failed tells the store's errors from objects that do not decrypt.
func (r *ranges) failed(name string, err error) error {
	var other *age.NoIdentityMatchError
	switch {
	case r.err != nil:
		return r.err
	case errors.As(err, &other):
		return &archive.StoreError{Op: "decrypt", Name: name, Err: errors.New("it is encrypted with another key")}
	}
	return &archive.CorruptError{Name: name, Err: fmt.Errorf("decrypt: %w", err)}
}
