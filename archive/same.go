package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"

	"walproxy/protocol"
)

// ReadObject hands the WAL of one object to emit, all of it that its timeline owns, in pieces that are valid during emit only,
// and returns its header. Every window is read and compared with the checksums of its frames, header and index.
//
// Errors: ErrNotExist; *CorruptError; *IdentityError; *VersionError; emit's; those of the store.
func (a *Archive) ReadObject(ctx context.Context, s Span, emit func(protocol.LSN, []byte) error) (Header, error) {
	r := objectReader{atOnce: runtime.GOMAXPROCS(0)}
	if err := a.openStored(ctx, &r, s); err != nil {
		return r.header, err
	}
	err := r.read(ctx, s.Start, s.End, emit)
	return r.header, err
}

// openStored opens the object of a span and checks that it is the one that its name says.
func (a *Archive) openStored(ctx context.Context, r *objectReader, s Span) error {
	name := s.Name()
	if err := r.open(ctx, name, firstBytes, a.get(name)); err != nil {
		return err
	}
	if r.header.Span != s {
		return damaged(name, s.Timeline, s.Start, errors.New("the name says otherwise"))
	}
	if r.header.Identity != a.id {
		return fmt.Errorf("read object %s: %w", name, &IdentityError{Have: a.id, Got: r.header.Identity})
	}
	return nil
}

// Same compares the stored object of s, which lies within o, with o, which need not be stored.
//
// Errors: *ConflictError for other WAL; ErrNotExist; *CorruptError; those of the store.
func (a *Archive) Same(ctx context.Context, o *Object, s Span) error {
	var mine, stored objectReader
	if err := mine.open(ctx, o.Header.Name(), firstBytes, o.fetch); err != nil {
		return err
	}
	if err := a.openStored(ctx, &stored, s); err != nil {
		return err
	}
	var window []byte
	for _, w := range stored.header.Windows {
		end := min(w.End(), s.End)
		window = window[:0]
		err := stored.read(ctx, w.Start, end, func(_ protocol.LSN, wal []byte) error {
			window = append(window, wal...)
			return nil
		})
		if err != nil {
			return err
		}
		err = mine.read(ctx, w.Start, end, func(lsn protocol.LSN, wal []byte) error {
			if other := window[lsn-w.Start:][:len(wal)]; !bytes.Equal(wal, other) {
				return &ConflictError{Name: s.Name(), Timeline: s.Timeline, LSN: lsn + protocol.LSN(firstDifference(wal, other))}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
