package archive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"walproxy/protocol"
)

// identityVersion is the version of the archive's layout: names and the identity object.
const identityVersion = 1

// maxIdentityBytes bounds the identity object.
const maxIdentityBytes = 4 << 10

// Identity says whose WAL an archive holds: one cluster's, with one segment size.
type Identity struct {
	SystemID     protocol.SystemID
	Major        int    // of the server, 13 to 18 are known
	SegmentSize  uint32 // wal_segment_size in bytes
	WALBlockSize uint32 // wal_block_size in bytes
}

func (i Identity) String() string {
	return fmt.Sprintf("%s (PostgreSQL %d, segments of %d MiB, WAL blocks of %d bytes)", i.SystemID, i.Major, i.SegmentSize>>20, i.WALBlockSize)
}

// valid reports whether such a cluster can be.
func (i Identity) valid() bool {
	return i.SystemID != 0 && i.Major > 0 && i.Major < 1<<16 && protocol.ValidSegmentSize(uint64(i.SegmentSize)) &&
		i.WALBlockSize >= 1<<10 && i.WALBlockSize <= 64<<10 && i.WALBlockSize&(i.WALBlockSize-1) == 0
}

// identityFile is the identity object as JSON.
type identityFile struct {
	Version      int    `json:"archive_version"`
	SystemID     string `json:"system_identifier"`
	Major        int    `json:"postgresql_major"`
	SegmentSize  uint32 `json:"wal_segment_size"`
	WALBlockSize uint32 `json:"wal_block_size"`
}

// encode returns the identity object; the same identity gives the same bytes.
func (i Identity) encode() []byte {
	b, err := json.MarshalIndent(identityFile{
		Version: identityVersion, SystemID: i.SystemID.String(), Major: i.Major, SegmentSize: i.SegmentSize, WALBlockSize: i.WALBlockSize,
	}, "", "  ")
	if err != nil {
		return nil // numbers and a string of digits always encode
	}
	return append(b, '\n')
}

// decodeIdentity reads the identity object.
//
// Errors: *VersionError for a newer layout; *CorruptError.
func decodeIdentity(b []byte) (Identity, error) {
	bad := func(err error) (Identity, error) { return Identity{}, &CorruptError{Name: identityName, Err: err} }
	var version struct {
		Version int `json:"archive_version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return bad(err)
	}
	if version.Version != identityVersion {
		return Identity{}, &VersionError{What: "archive layout", Got: version.Version}
	}
	var f identityFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return bad(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad(fmt.Errorf("bytes behind the end"))
	}
	system, err := strconv.ParseUint(f.SystemID, 10, 64)
	if err != nil {
		return bad(fmt.Errorf("system identifier %q", f.SystemID))
	}
	id := Identity{SystemID: protocol.SystemID(system), Major: f.Major, SegmentSize: f.SegmentSize, WALBlockSize: f.WALBlockSize}
	if !id.valid() {
		return bad(fmt.Errorf("no cluster is like this: %s", id))
	}
	return id, nil
}
