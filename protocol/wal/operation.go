package wal

import "fmt"

// operations names what each resource manager of version 18 does, by the high half of xl_info. Blanks are unknown.
// The Transaction manager keeps a flag in the top bit and is looked up without it.
//
// Source: PostgreSQL src/backend/access/rmgrdesc/*.c, the *_identify functions (18).
var operations = [...][16]string{
	RmgrXLOG: {
		"CHECKPOINT_SHUTDOWN", "CHECKPOINT_ONLINE", "NOOP", "NEXTOID", "SWITCH", "BACKUP_END", "PARAMETER_CHANGE", "RESTORE_POINT",
		"FPW_CHANGE", "END_OF_RECOVERY", "FPI_FOR_HINT", "FPI", "", "OVERWRITE_CONTRECORD", "CHECKPOINT_REDO",
	},
	RmgrTransaction: {"COMMIT", "PREPARE", "ABORT", "COMMIT_PREPARED", "ABORT_PREPARED", "ASSIGNMENT", "INVALIDATION"},
	RmgrStorage:     {1: "CREATE", 2: "TRUNCATE"},
	RmgrCLOG:        {"ZEROPAGE", "TRUNCATE"},
	RmgrDatabase:    {"CREATE_FILE_COPY", "CREATE_WAL_LOG", "DROP"},
	RmgrTablespace:  {"CREATE", "DROP"},
	RmgrMultiXact:   {"ZERO_OFF_PAGE", "ZERO_MEM_PAGE", "CREATE_ID", "TRUNCATE_ID"},
	RmgrRelMap:      {"UPDATE"},
	RmgrStandby:     {"LOCK", "RUNNING_XACTS", "INVALIDATIONS"},
	RmgrHeap2: {
		0: "REWRITE", 1: "PRUNE_ON_ACCESS", 2: "PRUNE_VACUUM_SCAN", 3: "PRUNE_VACUUM_CLEANUP", 4: "VISIBLE", 5: "MULTI_INSERT",
		6: "LOCK_UPDATED", 7: "NEW_CID", 13: "MULTI_INSERT+INIT",
	},
	RmgrHeap: {
		0: "INSERT", 1: "DELETE", 2: "UPDATE", 3: "TRUNCATE", 4: "HOT_UPDATE", 5: "HEAP_CONFIRM", 6: "LOCK", 7: "INPLACE",
		8: "INSERT+INIT", 10: "UPDATE+INIT", 12: "HOT_UPDATE+INIT",
	},
	RmgrBtree: {
		"INSERT_LEAF", "INSERT_UPPER", "INSERT_META", "SPLIT_L", "SPLIT_R", "INSERT_POST", "DEDUP", "DELETE", "UNLINK_PAGE",
		"UNLINK_PAGE_META", "NEWROOT", "MARK_PAGE_HALFDEAD", "VACUUM", "REUSE_PAGE", "META_CLEANUP",
	},
	RmgrHash: {
		"INIT_META_PAGE", "INIT_BITMAP_PAGE", "INSERT", "ADD_OVFL_PAGE", "SPLIT_ALLOCATE_PAGE", "SPLIT_PAGE", "SPLIT_COMPLETE",
		"MOVE_PAGE_CONTENTS", "SQUEEZE_PAGE", "DELETE", "SPLIT_CLEANUP", "UPDATE_META_PAGE", "VACUUM_ONE_PAGE",
	},
	RmgrGin: {
		1: "CREATE_PTREE", 2: "INSERT", 3: "SPLIT", 4: "VACUUM_PAGE", 5: "DELETE_PAGE", 6: "UPDATE_META_PAGE", 7: "INSERT_LISTPAGE",
		8: "DELETE_LISTPAGE", 9: "VACUUM_DATA_LEAF_PAGE",
	},
	RmgrGist:     {0: "PAGE_UPDATE", 1: "DELETE", 2: "PAGE_REUSE", 3: "PAGE_SPLIT", 6: "PAGE_DELETE", 7: "ASSIGN_LSN"},
	RmgrSequence: {"LOG"},
	RmgrSPGist: {
		1: "ADD_LEAF", 2: "MOVE_LEAFS", 3: "ADD_NODE", 4: "SPLIT_TUPLE", 5: "PICKSPLIT", 6: "VACUUM_LEAF", 7: "VACUUM_ROOT",
		8: "VACUUM_REDIRECT",
	},
	RmgrBRIN: {
		0: "CREATE_INDEX", 1: "INSERT", 2: "UPDATE", 3: "SAMEPAGE_UPDATE", 4: "REVMAP_EXTEND", 5: "DESUMMARIZE", 9: "INSERT+INIT",
		10: "UPDATE+INIT",
	},
	RmgrCommitTs:          {"ZEROPAGE", "TRUNCATE"},
	RmgrReplicationOrigin: {"SET", "DROP"},
	RmgrGeneric: {
		"Generic", "Generic", "Generic", "Generic", "Generic", "Generic", "Generic", "Generic",
		"Generic", "Generic", "Generic", "Generic", "Generic", "Generic", "Generic", "Generic",
	},
	RmgrLogicalMessage: {"MESSAGE"},
}

// olderOperations are the names up to version last, the smallest last first; an empty one is unknown there.
var olderOperations = [...]struct {
	last Version
	rmgr Rmgr
	op   uint8
	name string
}{
	{PG13, RmgrTransaction, 6, ""},
	{PG13, RmgrHeap2, 1, "CLEAN"},
	{PG13, RmgrHeap2, 2, "FREEZE_PAGE"},
	{PG13, RmgrHeap2, 3, "CLEANUP_INFO"},
	{PG13, RmgrCommitTs, 2, "SETTS"},
	{PG14, RmgrDatabase, 0, "CREATE"},
	{PG14, RmgrDatabase, 1, "DROP"},
	{PG14, RmgrDatabase, 2, ""},
	{PG16, RmgrHeap2, 1, "PRUNE"},
	{PG16, RmgrHeap2, 2, "VACUUM"},
	{PG16, RmgrHeap2, 3, "FREEZE_PAGE"},
	{PG16, RmgrXLOG, 14, ""},
}

// Operation returns the name that pg_waldump and pg_walinspect of version v give to what a record does: "INSERT+INIT",
// "COMMIT". What they do not know, and every record of a custom resource manager, is "UNKNOWN (80)" with xl_info in hexadecimal.
func Operation(v Version, rmgr Rmgr, info uint8) string {
	op := info >> 4
	if rmgr == RmgrTransaction {
		op &= xactOpMask >> 4
	}
	name := ""
	if int(rmgr) < len(operations) {
		name = operations[rmgr][op]
		for i := range olderOperations {
			if o := &olderOperations[i]; v <= o.last && o.rmgr == rmgr && o.op == op {
				name = o.name
				break
			}
		}
	}
	if name == "" {
		return fmt.Sprintf("UNKNOWN (%x)", info&infoRmgrMask)
	}
	return name
}
