package node

import (
	"encoding/binary"
	"sync/atomic"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// redoTracker remembers where recovery from the newest checkpoint that passed begins: there a server's RESERVE_WAL begins too.
// It costs one look at each record on the way in, and forgets with the process.
type redoTracker struct {
	identity func() (protocol.Identity, bool) // known before the first WAL comes
	walker   *wal.Walker                      // of the goroutine that writes, as the rest; nil before the first WAL
	record   wal.Record

	redo     atomic.Uint64 // LSN; 0 while none is known
	timeline protocol.Timeline
}

// observe looks at WAL that is taken in. WAL that does not follow what came before is another beginning.
func (r *redoTracker) observe(tli protocol.Timeline, start protocol.LSN, content []byte) {
	if r.walker == nil {
		id, _ := r.identity()
		r.walker = wal.NewWalker(start, wal.Options{Stream: wal.Stream{PageSize: id.WALBlockSize, SegmentSize: id.SegmentSize}})
	}
	if r.walker.Position() != start || r.timeline != tli {
		r.walker.Reset(start)
	}
	r.timeline = tli
	if r.walker.Feed(content) != nil {
		return
	}
	for ev, ok := r.walker.Next(); ok; ev, ok = r.walker.Next() {
		if ev.Kind == wal.KindRecord {
			r.look(ev)
		}
	}
}

// Operations of the XLOG manager, in the high half of xl_info.
//
// Source: PostgreSQL src/include/catalog/pg_control.h, XLOG_CHECKPOINT_SHUTDOWN and XLOG_CHECKPOINT_ONLINE (13-18).
const (
	checkpointShutdown = 0x00
	checkpointOnline   = 0x10
	operationMask      = 0xF0
)

// look takes the redo position out of a checkpoint record, whose data begin with it.
//
// Source: PostgreSQL src/include/catalog/pg_control.h, CheckPoint (13-18).
func (r *redoTracker) look(ev *wal.Event) {
	header, err := wal.ParseHeader(ev.Data)
	if err != nil || header.Rmgr != wal.RmgrXLOG {
		return
	}
	if op := header.Info & operationMask; op != checkpointShutdown && op != checkpointOnline {
		return
	}
	if wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &r.record) != nil || len(r.record.Main) < 8 {
		return
	}
	if redo := protocol.LSN(binary.LittleEndian.Uint64(r.record.Main)); redo <= ev.Start {
		r.redo.Store(uint64(redo))
	}
}

// position returns the redo position; 0 while none is known. Safe for concurrent use.
func (r *redoTracker) position() protocol.LSN { return protocol.LSN(r.redo.Load()) }
