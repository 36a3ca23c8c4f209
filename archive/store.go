package archive

import (
	"context"
	"io"
	"iter"
	"time"
)

// Store holds objects by name. Names are slash-separated, of ASCII letters, digits, '.', '-' and '_', and relative to the
// store's own root; no element begins with a dot. Implementations are safe for concurrent use, also by several processes.
//
// An object is visible as a whole or not at all, and never changes once it is there. Every call ends at ctx's deadline, and by
// the implementation's own deadline if the other side does not answer; retries of what may pass happen inside. Errors are of
// class ErrNotExist, ErrExists or ErrUnavailable where they say so, and else permanent: no access, no such bucket, bad name.
type Store interface {
	// Put stores the size bytes of body as name, unless an object has that name: ErrExists, and that object is unchanged. The
	// object is durable on return. Body may be read several times and is not retained. After an error of class ErrUnavailable
	// the object may be there, and then it is whole.
	Put(ctx context.Context, name string, body io.ReaderAt, size int64) error
	// Get appends length bytes from offset on to dst, or fewer if the object ends before (none at its end or behind it), and
	// returns the extended buffer; dst as it was if there is an error. ErrNotExist if there is no such object.
	Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error)
	// List yields the objects whose names begin with prefix and are greater than after, in ascending order of the names' bytes.
	// It ends with the first error. Objects put or deleted meanwhile may be missing or present.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Delete removes an object; one that is not there is no error. It is durable on return.
	Delete(ctx context.Context, name string) error
	// String names the store as it is written on the command line, without credentials.
	String() string
	// Close ends what the store holds open. It is idempotent.
	Close() error
}

// Info is what a listing says of an object.
type Info struct {
	Name     string
	Bytes    int64
	Modified time.Time // when it was stored
}
