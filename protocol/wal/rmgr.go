package wal

import "fmt"

// Rmgr is the number of a resource manager: 0 to 21 are the server's own, 128 to 255 belong to extensions (15-18).
//
// Source: PostgreSQL src/include/access/rmgrlist.h (13-18, unchanged).
type Rmgr uint8

// The server's resource managers.
const (
	RmgrXLOG Rmgr = iota
	RmgrTransaction
	RmgrStorage
	RmgrCLOG
	RmgrDatabase
	RmgrTablespace
	RmgrMultiXact
	RmgrRelMap
	RmgrStandby
	RmgrHeap2
	RmgrHeap
	RmgrBtree
	RmgrHash
	RmgrGin
	RmgrGist
	RmgrSequence
	RmgrSPGist
	RmgrBRIN
	RmgrCommitTs
	RmgrReplicationOrigin
	RmgrGeneric
	RmgrLogicalMessage

	firstCustomRmgr Rmgr = 128
)

var rmgrNames = [...]string{
	"XLOG", "Transaction", "Storage", "CLOG", "Database", "Tablespace", "MultiXact", "RelMap", "Standby", "Heap2", "Heap", "Btree",
	"Hash", "Gin", "Gist", "Sequence", "SPGist", "BRIN", "CommitTs", "ReplicationOrigin", "Generic", "LogicalMessage",
}

// String returns the name that pg_waldump prints: "Heap2", "custom128".
func (r Rmgr) String() string {
	switch {
	case int(r) < len(rmgrNames):
		return rmgrNames[r]
	case r >= firstCustomRmgr:
		return fmt.Sprintf("custom%03d", uint8(r))
	}
	return fmt.Sprintf("UNKNOWN %d", uint8(r))
}
