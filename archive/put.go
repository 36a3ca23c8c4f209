package archive

import (
	"context"
	"errors"
	"fmt"
	"io"

	"walproxy/protocol"
)

// Put stores an object. It reports true if the same WAL was there already, under the same name, however it is coded; the object
// there is unchanged and was read to its end then.
//
// Errors: *IdentityError if o is another cluster's; *ConflictError if other WAL lies under the name; *CorruptError if what lies
// there cannot be read; those of the store.
func (a *Archive) Put(ctx context.Context, o *Object) (existed bool, err error) {
	if o.Header.Identity != a.id {
		return false, fmt.Errorf("archive WAL at %s on timeline %d: %w", o.Header.Start, o.Header.Timeline, &IdentityError{Have: a.id, Got: o.Header.Identity})
	}
	err = a.store.Put(ctx, o.Header.Name(), o, o.Header.Bytes)
	if errors.Is(err, ErrExists) {
		existed, err = true, a.Same(ctx, o, o.Header.Span)
	}
	if err != nil {
		return existed, fmt.Errorf("archive WAL from %s to %s on timeline %d: %w", o.Header.Start, o.Header.End, o.Header.Timeline, err)
	}
	return existed, nil
}

// File is a plain file that is to be archived.
type File struct {
	Name    string // as PlainFile knows it
	Content io.ReaderAt
	Bytes   int64
}

// PutFile stores a plain file. It reports true if the same content was there already.
//
// Errors: *ConflictError if another content lies under the name; those of the store.
func (a *Archive) PutFile(ctx context.Context, f File) (existed bool, err error) {
	if !PlainFile(f.Name) {
		return false, fmt.Errorf("archive file %s: %w", f.Name, ErrNotWAL)
	}
	err = a.store.Put(ctx, FileName(f.Name), f.Content, f.Bytes)
	if errors.Is(err, ErrExists) {
		existed, err = true, a.compareFile(ctx, f)
	}
	if err != nil {
		return existed, fmt.Errorf("archive file %s: %w", f.Name, err)
	}
	return existed, nil
}

// compareFile returns a *ConflictError if the archive's file is not f.
func (a *Archive) compareFile(ctx context.Context, f File) error {
	conflict := &ConflictError{Name: FileName(f.Name)}
	var stored []byte
	for at := int64(0); ; at += pieceBytes {
		var err error
		if stored, err = a.store.Get(ctx, stored[:0], conflict.Name, at, pieceBytes); err != nil {
			return err
		}
		if int64(len(stored)) != max(0, min(f.Bytes-at, pieceBytes)) {
			return conflict
		}
		if len(stored) == 0 {
			return nil
		}
		same, err := contains(f.Content, at, stored)
		if err != nil {
			return err
		}
		if !same {
			return conflict
		}
	}
}

// Segment returns the cell of the archive's segments that lsn lies in, as a span of a timeline.
func (a *Archive) Segment(tli protocol.Timeline, lsn protocol.LSN) Span {
	size := uint64(a.id.SegmentSize)
	return Span{Timeline: tli, Start: lsn.Floor(size), End: lsn.Next(size)}
}
