package wal_test

import (
	"strings"
	"testing"

	"walproxy/protocol/wal"
)

func TestOperationPerVersion(t *testing.T) {
	cases := []struct {
		rmgr  wal.Rmgr
		info  uint8
		names string // of the versions 13 to 18
	}{
		{wal.RmgrHeap, 0x80, "INSERT+INIT INSERT+INIT INSERT+INIT INSERT+INIT INSERT+INIT INSERT+INIT"},
		{wal.RmgrHeap2, 0x00, "REWRITE REWRITE REWRITE REWRITE REWRITE REWRITE"},
		{wal.RmgrHeap2, 0x10, "CLEAN PRUNE PRUNE PRUNE PRUNE_ON_ACCESS PRUNE_ON_ACCESS"},
		{wal.RmgrHeap2, 0x20, "FREEZE_PAGE VACUUM VACUUM VACUUM PRUNE_VACUUM_SCAN PRUNE_VACUUM_SCAN"},
		{wal.RmgrHeap2, 0x30, "CLEANUP_INFO FREEZE_PAGE FREEZE_PAGE FREEZE_PAGE PRUNE_VACUUM_CLEANUP PRUNE_VACUUM_CLEANUP"},
		{wal.RmgrHeap2, 0xD3, "MULTI_INSERT+INIT MULTI_INSERT+INIT MULTI_INSERT+INIT MULTI_INSERT+INIT MULTI_INSERT+INIT MULTI_INSERT+INIT"},
		{wal.RmgrDatabase, 0x00, "CREATE CREATE CREATE_FILE_COPY CREATE_FILE_COPY CREATE_FILE_COPY CREATE_FILE_COPY"},
		{wal.RmgrDatabase, 0x10, "DROP DROP CREATE_WAL_LOG CREATE_WAL_LOG CREATE_WAL_LOG CREATE_WAL_LOG"},
		{wal.RmgrDatabase, 0x20, "UNKNOWN_(20) UNKNOWN_(20) DROP DROP DROP DROP"},
		{wal.RmgrCommitTs, 0x20, "SETTS UNKNOWN_(20) UNKNOWN_(20) UNKNOWN_(20) UNKNOWN_(20) UNKNOWN_(20)"},
		{wal.RmgrTransaction, 0x60, "UNKNOWN_(60) INVALIDATION INVALIDATION INVALIDATION INVALIDATION INVALIDATION"},
		{wal.RmgrTransaction, 0xB0, "COMMIT_PREPARED COMMIT_PREPARED COMMIT_PREPARED COMMIT_PREPARED COMMIT_PREPARED COMMIT_PREPARED"},
		{wal.RmgrXLOG, 0xE0, "UNKNOWN_(e0) UNKNOWN_(e0) UNKNOWN_(e0) UNKNOWN_(e0) CHECKPOINT_REDO CHECKPOINT_REDO"},
		{wal.RmgrXLOG, 0xC0, "UNKNOWN_(c0) UNKNOWN_(c0) UNKNOWN_(c0) UNKNOWN_(c0) UNKNOWN_(c0) UNKNOWN_(c0)"},
		{200, 0x1F, "UNKNOWN_(10) UNKNOWN_(10) UNKNOWN_(10) UNKNOWN_(10) UNKNOWN_(10) UNKNOWN_(10)"},
	}
	for _, c := range cases {
		for i, want := range strings.Fields(c.names) {
			if got := wal.Operation(formats[i], c.rmgr, c.info); got != strings.ReplaceAll(want, "_(", " (") {
				t.Errorf("%s: %s %#02x is %s, want %s", formats[i], c.rmgr, c.info, got, want)
			}
		}
	}
}

func TestRmgrNames(t *testing.T) {
	for id, want := range map[wal.Rmgr]string{
		wal.RmgrXLOG: "XLOG", wal.RmgrHeap2: "Heap2", wal.RmgrLogicalMessage: "LogicalMessage", 22: "UNKNOWN 22", 128: "custom128", 255: "custom255",
	} {
		if id.String() != want {
			t.Errorf("%d is %s, want %s", uint8(id), id, want)
		}
	}
	if wal.PG14.ValidRmgr(128) || !wal.PG15.ValidRmgr(128) || wal.PG15.ValidRmgr(22) || wal.PG15.ValidRmgr(127) || !wal.PG13.ValidRmgr(21) {
		t.Error("wrong resource managers are valid")
	}
}

func TestClass(t *testing.T) {
	cases := []struct {
		rmgr    wal.Rmgr
		info    uint8
		class   wal.Class
		alone   bool
		awaited bool
	}{
		{wal.RmgrTransaction, 0x80, wal.ClassTransactionEnd, false, true},
		{wal.RmgrTransaction, 0x20, wal.ClassTransactionEnd, false, true},
		{wal.RmgrTransaction, 0x10, wal.ClassPrepare, true, true},
		{wal.RmgrTransaction, 0xB0, wal.ClassTransactionEnd, false, true},
		{wal.RmgrTransaction, 0x50, wal.ClassOther, false, false},
		{wal.RmgrXLOG, 0x00, wal.ClassCheckpoint, true, false},
		{wal.RmgrXLOG, 0x10, wal.ClassCheckpoint, true, false},
		{wal.RmgrXLOG, 0x41, wal.ClassSwitch, true, false},
		{wal.RmgrXLOG, 0x90, wal.ClassEndOfRecovery, true, false},
		{wal.RmgrXLOG, 0xD0, wal.ClassOverwriteContrecord, false, false},
		{wal.RmgrXLOG, 0xE0, wal.ClassCheckpointRedo, true, false},
		{wal.RmgrHeap, 0x40, wal.ClassOther, false, false},
	}
	for _, c := range cases {
		got := wal.ClassOf(c.rmgr, c.info)
		if got != c.class || got.StandsAlone() != c.alone || got.Awaited() != c.awaited {
			t.Errorf("%s %#02x: class %d, stands alone %v, awaited %v", c.rmgr, c.info, got, got.StandsAlone(), got.Awaited())
		}
	}
}
