package wal

// Class is what a record means to whoever carries WAL without replaying it.
type Class uint8

// The classes. Everything else is ClassOther.
const (
	ClassOther               Class = iota
	ClassTransactionEnd            // commit or abort, also of a prepared transaction: somebody may wait for it
	ClassPrepare                   // PREPARE TRANSACTION; read again by LSN at COMMIT PREPARED
	ClassSwitch                    // the rest of the segment is zeros
	ClassCheckpoint                // the end of a checkpoint; recovery reads it by LSN
	ClassCheckpointRedo            // where a checkpoint's replay starts (17-18)
	ClassEndOfRecovery             // first record after a promotion
	ClassOverwriteContrecord       // the record before was lost in a crash
)

const (
	opCheckpointShutdown  = 0x00
	opCheckpointOnline    = 0x10
	opSwitch              = 0x40
	opEndOfRecovery       = 0x90
	opOverwriteContrecord = 0xD0
	opCheckpointRedo      = 0xE0
	xactOpMask            = 0x70
	opXactCommit          = 0x00
	opXactPrepare         = 0x10
	opXactAbort           = 0x20
	opXactCommitPrepared  = 0x30
	opXactAbortPrepared   = 0x40
)

// ClassOf returns the class of a record with this resource manager and xl_info.
//
// Source: PostgreSQL src/include/catalog/pg_control.h, XLOG_*; src/include/access/xact.h, XLOG_XACT_* (13-18).
func ClassOf(rmgr Rmgr, info uint8) Class {
	switch rmgr {
	case RmgrXLOG:
		switch info & infoRmgrMask {
		case opCheckpointShutdown, opCheckpointOnline:
			return ClassCheckpoint
		case opSwitch:
			return ClassSwitch
		case opEndOfRecovery:
			return ClassEndOfRecovery
		case opOverwriteContrecord:
			return ClassOverwriteContrecord
		case opCheckpointRedo:
			return ClassCheckpointRedo
		}
	case RmgrTransaction:
		switch info & xactOpMask {
		case opXactCommit, opXactAbort, opXactCommitPrepared, opXactAbortPrepared:
			return ClassTransactionEnd
		case opXactPrepare:
			return ClassPrepare
		}
	}
	return ClassOther
}

// StandsAlone reports whether readers come for a record of this class by its LSN, without what precedes it.
func (c Class) StandsAlone() bool {
	switch c {
	case ClassPrepare, ClassSwitch, ClassCheckpoint, ClassCheckpointRedo, ClassEndOfRecovery:
		return true
	}
	return false
}

// Awaited reports whether a session may wait until a record of this class has reached a standby.
func (c Class) Awaited() bool { return c == ClassTransactionEnd || c == ClassPrepare }
