package recompress

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"walproxy/protocol/wal"
)

// Policy says which records are compressed, by the kind of work that they are written for.
type Policy uint8

// The policies. Each but All includes those before it.
const (
	CompressAll      Policy = iota // everything
	CompressOff                    // nothing
	CompressVacuum                 // what VACUUM writes
	CompressPhysical               // also bulk work: page images of index builds and rewrites, COPY
	CompressLogical                // also changes of tables and indexes
)

var policyNames = [...]string{CompressAll: "all", CompressOff: "off", CompressVacuum: "vacuum", CompressPhysical: "physical", CompressLogical: "logical"}

// ParsePolicy returns the policy called name: off, vacuum, physical, logical or all.
func ParsePolicy(name string) (Policy, error) {
	if i := slices.Index(policyNames[:], name); i >= 0 {
		return Policy(i), nil
	}
	return 0, fmt.Errorf("unknown policy %q: want off, vacuum, physical, logical or all", name)
}

func (p Policy) String() string { return policyNames[p] }

// covers reports whether records of that work are compressed.
func (p Policy) covers(w wal.Work) bool {
	switch p {
	case CompressOff:
		return false
	case CompressVacuum:
		return w <= wal.WorkVacuum
	case CompressPhysical:
		return w <= wal.WorkPhysical
	case CompressLogical:
		return w <= wal.WorkLogical
	}
	return true
}

// Relations is a set of relation files, by tablespace, database and relfilenode. A zero stands for any.
type Relations struct{ Tablespace, Database, Number uint32 }

// ParseRelations reads "tablespace/database/relfilenode", each a number or *.
func ParseRelations(text string) (r Relations, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return r, fmt.Errorf("%q is not tablespace/database/relfilenode, each a number or *", text)
	}
	for i, to := range []*uint32{&r.Tablespace, &r.Database, &r.Number} {
		if parts[i] == "*" {
			continue
		}
		n, err := strconv.ParseUint(parts[i], 10, 32)
		if err != nil || n == 0 {
			return r, fmt.Errorf("%q: %q is neither a number nor *", text, parts[i])
		}
		*to = uint32(n)
	}
	return r, nil
}

func (r Relations) String() string {
	part := func(n uint32) string {
		if n == 0 {
			return "*"
		}
		return strconv.FormatUint(uint64(n), 10)
	}
	return part(r.Tablespace) + "/" + part(r.Database) + "/" + part(r.Number)
}

// holds reports whether the relation whose identity b begins with is in the set.
func (r Relations) holds(b []byte) bool {
	for i, want := range []uint32{r.Tablespace, r.Database, r.Number} {
		if want != 0 && want != binary.LittleEndian.Uint32(b[4*i:]) {
			return false
		}
	}
	return true
}

// firstRelation returns the 12 bytes that identify the relation of a record's first block, nil if b, the record's beginning,
// does not show one.
//
// Source: PostgreSQL src/include/access/xlogrecord.h, XLogRecordBlockHeader (13-18).
func firstRelation(b []byte, compressed byte) []byte {
	const hasImage, hasHole, maxBlock = 0x10, 0x01, 32
	at := wal.RecordHeaderBytes
	if len(b) < at+4 || b[at] > maxBlock {
		return nil
	}
	image := b[at+1]&hasImage != 0
	if at += 4; image {
		if len(b) < at+5 {
			return nil
		}
		info := b[at+4]
		if at += 5; info&hasHole != 0 && info&compressed != 0 {
			at += 2
		}
	}
	if len(b) < at+12 {
		return nil
	}
	return b[at : at+12]
}
