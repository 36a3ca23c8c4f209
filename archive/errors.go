package archive

import (
	"errors"
	"fmt"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

var (
	// ErrNotExist means that the store answered, and holds no such object.
	ErrNotExist = errors.New("not in the archive")
	// ErrExists means that an object has the name already.
	ErrExists = errors.New("already in the archive")
	// ErrUnavailable is the class of errors that may pass: the store did not answer, or not in time, or said that it is busy.
	// Trying again later is right.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrNoIdentity means that nothing was archived yet.
	ErrNoIdentity = errors.New("the archive is empty: no identity")
	// ErrReplaces means that the store puts objects into the place of others although it is told not to.
	ErrReplaces = errors.New("the store does not know If-None-Match: put conditional=off into its address, and let one server at a time archive")
	// ErrEncrypted means that the archive is encrypted, and no key was given.
	ErrEncrypted = errors.New("the archive is encrypted: name its key file, as in file:///dir?key_file=/path")
	// ErrNotWAL means that a file given to be archived is not what its name says.
	ErrNotWAL = errors.New("not a WAL file")
)

// StoreError says which request failed. Err is of a class above, or permanent.
type StoreError struct {
	Op   string // "put", "get", "list", "delete"
	Name string // of the object, or the prefix listed
	Err  error
}

func (e *StoreError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Name, e.Err) }

func (e *StoreError) Unwrap() error { return e.Err }

// Retryable reports whether the same call may succeed later.
func Retryable(err error) bool { return errors.Is(err, ErrUnavailable) }

// IdentityError says that WAL belongs to another cluster than the archive. Nothing was written.
type IdentityError struct {
	Have, Got Identity
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("the archive holds the cluster %s, this is the cluster %s; give each cluster a prefix of its own", e.Have, e.Got)
}

// ConflictError says that the archive holds something else under a name or at a place. Nothing was written.
type ConflictError struct {
	Name     string
	Timeline protocol.Timeline // 0 for files that hold no WAL
	LSN      protocol.LSN      // first byte that differs, as far as it is known
}

func (e *ConflictError) Error() string {
	if e.Timeline == 0 {
		return fmt.Sprintf("%s is in the archive with another content: two servers archive to one place, or a timeline was taken twice", e.Name)
	}
	return fmt.Sprintf("other WAL than the archive's at %s on timeline %d (%s): two servers archive to one place, or one was reset", e.LSN, e.Timeline, e.Name)
}

// CorruptError says that an object is not what was written. It is a link.ErrCorrupt.
type CorruptError struct {
	Name     string
	Timeline protocol.Timeline
	LSN      protocol.LSN // first WAL that cannot be read; 0 if it is not known
	Err      error
}

func (e *CorruptError) Error() string {
	if e.LSN != 0 {
		return fmt.Sprintf("corrupt object %s, WAL from %s on timeline %d: %v", e.Name, e.LSN, e.Timeline, e.Err)
	}
	return fmt.Sprintf("corrupt object %s: %v", e.Name, e.Err)
}

// Is makes every CorruptError one of the class link.ErrCorrupt, whatever the cause.
func (e *CorruptError) Is(target error) bool { return target == link.ErrCorrupt }

func (e *CorruptError) Unwrap() error { return e.Err }

// GapError says that WAL is missing between objects of one timeline: From up to To is not in the archive, more is.
type GapError struct {
	Timeline protocol.Timeline
	From, To protocol.LSN
}

func (e *GapError) Error() string {
	return fmt.Sprintf("WAL from %s to %s on timeline %d is missing from the archive", e.From, e.To, e.Timeline)
}

// VersionError says that the archive is of a format this program does not know; it may be fine for a newer one.
type VersionError struct {
	What string
	Got  int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("unknown %s %d: written by a newer walproxy?", e.What, e.Got)
}

// MissingError says that the archive holds no WAL of a timeline at LSN, and none behind it. It is an ErrNotExist.
type MissingError struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("WAL at %s on timeline %d is not in the archive", e.LSN, e.Timeline)
}

// Is makes every MissingError one of the class ErrNotExist.
func (e *MissingError) Is(target error) bool { return target == ErrNotExist }
