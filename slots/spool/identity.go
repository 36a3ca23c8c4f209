package spool

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"strconv"

	"walproxy/protocol"
	"walproxy/slots/fs"
	"walproxy/slots/statefile"
)

const (
	identityKind    = "identity"
	identityVersion = 1
)

// identityFile is the JSON of an identity file. The system identifier is text because JSON numbers lose its low bits.
type identityFile struct {
	SystemID      string            `json:"system_id"`
	SegmentSize   uint32            `json:"wal_segment_size"`
	WALBlockSize  uint32            `json:"wal_block_size"`
	ServerVersion string            `json:"server_version"`
	Settings      map[string]string `json:"settings"`
}

func encodeIdentity(id protocol.Identity) ([]byte, error) {
	return statefile.Encode(identityKind, identityVersion, identityFile{SystemID: id.SystemID.String(), SegmentSize: id.SegmentSize,
		WALBlockSize: id.WALBlockSize, ServerVersion: id.ServerVersion, Settings: id.Settings})
}

func decodeIdentity(content []byte) (protocol.Identity, error) {
	var file identityFile
	if err := statefile.Decode(content, identityKind, identityVersion, &file); err != nil {
		return protocol.Identity{}, err
	}
	system, err := strconv.ParseUint(file.SystemID, 10, 64)
	if err != nil {
		return protocol.Identity{}, fmt.Errorf("%w: system identifier %q", statefile.ErrCorrupt, file.SystemID)
	}
	id := protocol.Identity{SystemID: protocol.SystemID(system), SegmentSize: file.SegmentSize, WALBlockSize: file.WALBlockSize,
		ServerVersion: file.ServerVersion, Settings: file.Settings}
	return id, checkIdentity(id)
}

func checkIdentity(id protocol.Identity) error {
	if !protocol.ValidSegmentSize(uint64(id.SegmentSize)) {
		return fmt.Errorf("identity of system %s: %d bytes is no WAL segment size", id.SystemID, id.SegmentSize)
	}
	return nil
}

// Identity returns whose WAL this is; false before the first SetIdentity.
func (l *Log) Identity() (protocol.Identity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.identity, l.known
}

// SetIdentity stores whose WAL this is; it is durable on return. What the upstream may change (version, settings) replaces
// what was stored; another system identifier or segment size is an *IdentityError. id is retained.
func (l *Log) SetIdentity(id protocol.Identity) error {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	have, known := l.Identity()
	if known && (have.SystemID != id.SystemID || have.SegmentSize != id.SegmentSize) {
		return &IdentityError{Have: have, Got: id}
	}
	if known && reflect.DeepEqual(have, id) {
		return nil
	}
	if err := checkIdentity(id); err != nil {
		return err
	}
	content, err := encodeIdentity(id)
	if err != nil {
		return err
	}
	if err := l.writeFile(path.Join(l.dir, "identity"), content); err != nil {
		return fmt.Errorf("store identity: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.identity, l.known = id, true
	return nil
}

func (l *Log) loadIdentity() error {
	file := path.Join(l.dir, "identity")
	if err := l.fs.Remove(file + fs.TempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove leftover: %w", err)
	}
	content, err := fs.ReadFile(l.fs, file, statefile.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	id, err := decodeIdentity(content)
	var version *statefile.VersionError
	switch {
	case errors.As(err, &version):
		return fmt.Errorf("read %s: %w", file, err)
	case err != nil:
		return &CorruptError{File: file, Err: err,
			Hint: "restore it from a backup, or move the whole data directory away and let the node fetch the WAL again"}
	}
	l.identity, l.known = id, true
	return nil
}

func (l *Log) writeFile(name string, content []byte) error {
	return full(fs.WriteFile(l.fs, name, content))
}
