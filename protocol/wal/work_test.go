package wal

import "testing"

// Every operation that a version names has its kind of work, under the name that the version gives to it.
func TestWorkOf(t *testing.T) {
	for _, c := range []struct {
		v    Version
		rmgr Rmgr
		info uint8
		name string
		want Work
	}{
		{PG13, RmgrHeap2, 0x10, "CLEAN", WorkVacuum}, {PG14, RmgrHeap2, 0x10, "PRUNE", WorkVacuum}, {PG18, RmgrHeap2, 0x10, "PRUNE_ON_ACCESS", WorkVacuum},
		{PG13, RmgrHeap2, 0x20, "FREEZE_PAGE", WorkVacuum}, {PG16, RmgrHeap2, 0x20, "VACUUM", WorkVacuum}, {PG17, RmgrHeap2, 0x30, "PRUNE_VACUUM_CLEANUP", WorkVacuum},
		{PG15, RmgrHeap2, 0x40, "VISIBLE", WorkVacuum}, {PG15, RmgrHeap2, 0x50, "MULTI_INSERT", WorkPhysical}, {PG15, RmgrHeap2, 0xD0, "MULTI_INSERT+INIT", WorkPhysical},
		{PG15, RmgrHeap2, 0x60, "LOCK_UPDATED", WorkLogical}, {PG15, RmgrHeap, 0x80, "INSERT+INIT", WorkLogical}, {PG15, RmgrHeap, 0x40, "HOT_UPDATE", WorkLogical},
		{PG15, RmgrXLOG, 0xB0, "FPI", WorkPhysical}, {PG15, RmgrXLOG, 0xA0, "FPI_FOR_HINT", WorkPhysical}, {PG15, RmgrXLOG, 0x10, "CHECKPOINT_ONLINE", WorkOther},
		{PG15, RmgrBtree, 0xC0, "VACUUM", WorkVacuum}, {PG15, RmgrBtree, 0xA0, "NEWROOT", WorkLogical}, {PG15, RmgrBtree, 0x00, "INSERT_LEAF", WorkLogical},
		{PG15, RmgrGin, 0x90, "VACUUM_DATA_LEAF_PAGE", WorkVacuum}, {PG15, RmgrGist, 0x60, "PAGE_DELETE", WorkVacuum}, {PG15, RmgrSPGist, 0x80, "VACUUM_REDIRECT", WorkVacuum},
		{PG15, RmgrTransaction, 0x80, "COMMIT", WorkOther}, {PG15, RmgrSequence, 0x00, "LOG", WorkLogical}, {PG15, RmgrStandby, 0x10, "RUNNING_XACTS", WorkOther},
		{PG15, RmgrStorage, 0x20, "TRUNCATE", WorkPhysical}, {PG15, RmgrDatabase, 0x10, "CREATE_WAL_LOG", WorkPhysical}, {PG15, 200, 0x10, "UNKNOWN (10)", WorkLogical},
	} {
		if name := Operation(c.v, c.rmgr, c.info); name != c.name {
			t.Errorf("version %v, %s %02x is %s, not %s", c.v, c.rmgr, c.info, name, c.name)
		}
		if got := WorkOf(c.rmgr, c.info); got != c.want {
			t.Errorf("%s/%s is %s work, want %s", c.rmgr, c.name, got, c.want)
		}
	}
}
