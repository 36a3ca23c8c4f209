package wal

import "fmt"

// Work is the kind of work that a record is written for. Each is rarer to be left out than the one before.
type Work uint8

// The kinds of work.
const (
	WorkVacuum   Work = iota + 1 // what VACUUM and pruning write
	WorkPhysical                 // bulk work on files: page images of index builds and rewrites, COPY, copies of databases
	WorkLogical                  // changes of tables and indexes, row by row
	WorkOther                    // transactions, checkpoints, locks, everything else
)

var workNames = [...]string{WorkVacuum: "vacuum", WorkPhysical: "physical", WorkLogical: "logical", WorkOther: "other"}

func (w Work) String() string {
	if int(w) < len(workNames) && workNames[w] != "" {
		return workNames[w]
	}
	return fmt.Sprintf("work %d", uint8(w))
}

// vacuumOps and physicalOps hold, for each resource manager, a bit for each value of the upper half of xl_info that is that
// kind of work. The meaning of Heap2's 1 to 3 changed in 14 and in 17; they were pruning, freezing and cleanup in every version.
var (
	vacuumOps = [RmgrLogicalMessage + 1]uint16{
		RmgrHeap2:  1<<1 | 1<<2 | 1<<3 | 1<<4,                              // and VISIBLE
		RmgrBtree:  1<<7 | 1<<8 | 1<<9 | 1<<0xB | 1<<0xC | 1<<0xD | 1<<0xE, // DELETE to META_CLEANUP, NEWROOT apart
		RmgrHash:   1<<9 | 1<<0xA | 1<<0xC,                                 // DELETE, SPLIT_CLEANUP, VACUUM_ONE_PAGE
		RmgrGin:    1<<4 | 1<<5 | 1<<9,                                     // VACUUM_PAGE, DELETE_PAGE, VACUUM_DATA_LEAF_PAGE
		RmgrGist:   1<<1 | 1<<2 | 1<<6,                                     // DELETE, PAGE_REUSE, PAGE_DELETE
		RmgrSPGist: 1<<6 | 1<<7 | 1<<8,                                     // VACUUM_LEAF, VACUUM_ROOT, VACUUM_REDIRECT
		RmgrBRIN:   1 << 5,                                                 // DESUMMARIZE
	}
	physicalOps = [RmgrLogicalMessage + 1]uint16{
		RmgrXLOG:     1<<0xA | 1<<0xB,      // FPI_FOR_HINT, FPI
		RmgrStorage:  1<<1 | 1<<2,          // CREATE, TRUNCATE
		RmgrDatabase: 1<<0 | 1<<1,          // CREATE
		RmgrHeap2:    1<<0 | 1<<5 | 1<<0xD, // REWRITE, MULTI_INSERT
		RmgrHash:     1<<0 | 1<<1,          // INIT_META_PAGE, INIT_BITMAP_PAGE
		RmgrBRIN:     1 << 0,               // CREATE_INDEX
	}
)

// WorkOf returns the kind of work of a record with this resource manager and xl_info. It holds for every known version; records
// of extensions' managers count as logical.
//
// Source: PostgreSQL src/include/access/*_xlog.h, xlog_internal.h; src/include/catalog/pg_control.h, storage_xlog.h (13-18).
func WorkOf(rmgr Rmgr, info uint8) Work {
	if rmgr >= firstCustomRmgr {
		return WorkLogical
	}
	if rmgr > RmgrLogicalMessage {
		return WorkOther
	}
	bit := uint16(1) << (info >> 4)
	switch {
	case vacuumOps[rmgr]&bit != 0:
		return WorkVacuum
	case physicalOps[rmgr]&bit != 0:
		return WorkPhysical
	}
	switch rmgr {
	case RmgrHeap2, RmgrHeap, RmgrBtree, RmgrHash, RmgrGin, RmgrGist, RmgrSequence, RmgrSPGist, RmgrBRIN, RmgrGeneric, RmgrLogicalMessage:
		return WorkLogical
	}
	return WorkOther
}
