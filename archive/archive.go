package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"walproxy/protocol"
)

// pieceBytes is how much of a plain file or a window run is held at a time.
const pieceBytes = 4 << 20

// Archive is an opened store whose identity is known. Safe for concurrent use.
type Archive struct {
	store Store
	id    Identity
}

// Open opens the archive in store. The caller closes the store.
//
// Errors: ErrNoIdentity if nothing was archived yet; *CorruptError, *VersionError; those of the store.
func Open(ctx context.Context, store Store) (*Archive, error) {
	b, err := store.Get(ctx, nil, identityName, 0, maxIdentityBytes)
	if errors.Is(err, ErrNotExist) {
		return nil, fmt.Errorf("open archive %s: %w", store, ErrNoIdentity)
	}
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", store, err)
	}
	if bytes.HasPrefix(b, []byte("age-encryption.org/")) {
		return nil, fmt.Errorf("open archive %s: %w", store, ErrEncrypted)
	}
	id, err := decodeIdentity(b)
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", store, err)
	}
	return &Archive{store: store, id: id}, nil
}

// Create opens the archive of the cluster id in store, and makes it if there is none yet: nothing else is stored before.
//
// Errors: *IdentityError if the archive is another cluster's; ErrReplaces; those of Open.
func Create(ctx context.Context, store Store, id Identity) (*Archive, error) {
	if !id.valid() {
		return nil, fmt.Errorf("create archive %s: no cluster is like this: %s", store, id)
	}
	a, err := Open(ctx, store)
	if errors.Is(err, ErrNoIdentity) {
		// The second time shows whether the store keeps what is there: everything relies on it.
		content := id.encode()
		for range 2 {
			if err = store.Put(ctx, identityName, bytes.NewReader(content), int64(len(content))); err != nil {
				break
			}
		}
		if err == nil {
			err = ErrReplaces
		}
		if !errors.Is(err, ErrExists) {
			return nil, fmt.Errorf("create archive %s: %w", store, err)
		}
		a, err = Open(ctx, store) // whoever was first
	}
	if err != nil {
		return nil, err
	}
	if a.id != id {
		return nil, fmt.Errorf("open archive %s: %w", store, &IdentityError{Have: a.id, Got: id})
	}
	return a, nil
}

// Identity returns whose WAL the archive holds.
func (a *Archive) Identity() Identity { return a.id }

// Store returns the store.
func (a *Archive) Store() Store { return a.store }

// History returns the content of a timeline's history file. ErrNotExist if it is not in the archive.
func (a *Archive) History(ctx context.Context, tli protocol.Timeline) ([]byte, error) {
	return a.store.Get(ctx, nil, FileName(protocol.HistoryName(tli)), 0, protocol.MaxHistoryBytes)
}
