package node

import (
	"encoding/binary"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// walOf returns one page of WAL behind start, a segment's start: records of the XLOG manager with this info and redo position.
func walOf(start protocol.LSN, infos []byte, redo protocol.LSN) []byte {
	const segment, page = 1 << 20, 8192
	out := binary.LittleEndian.AppendUint16(nil, 0xD110) // 15
	out = binary.LittleEndian.AppendUint16(out, 2)       // long header
	out = binary.LittleEndian.AppendUint32(out, 1)
	out = binary.LittleEndian.AppendUint64(out, uint64(start))
	out = binary.LittleEndian.AppendUint64(out, 0)
	out = binary.LittleEndian.AppendUint64(out, 7) // system identifier
	out = binary.LittleEndian.AppendUint32(out, segment)
	out = binary.LittleEndian.AppendUint32(out, page)
	for _, info := range infos {
		main := binary.LittleEndian.AppendUint64(nil, uint64(redo))
		main = append(main, make([]byte, 80)...)
		header := wal.Header{TotalLength: uint32(wal.RecordHeaderBytes + 2 + len(main)), Info: info, Rmgr: wal.RmgrXLOG}
		rec := append(append(header.Append(nil), 255, byte(len(main))), main...)
		wal.SetCRC(rec)
		out = append(out, rec...)
		for len(out)%8 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

func TestRedoTracker(t *testing.T) {
	const segment = 1 << 20
	tracker := redoTracker{identity: func() (protocol.Identity, bool) {
		return protocol.Identity{SegmentSize: segment, WALBlockSize: 8192}, true
	}}
	step := func(what string, start protocol.LSN, content []byte, want protocol.LSN) {
		t.Helper()
		for i := range content { // in the smallest chunks
			tracker.observe(1, start+protocol.LSN(i), content[i:i+1])
		}
		if got := tracker.position(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("no checkpoint", 0x500000, walOf(0x500000, []byte{0x20, 0x30}, 0x400028), 0)
	step("online", 0x600000, walOf(0x600000, []byte{0x10, 0x20}, 0x500028), 0x500028)
	step("shutdown", 0x700000, walOf(0x700000, []byte{0x00}, 0x600030), 0x600030)
	damaged := walOf(0x800000, []byte{0x10}, 0x700030)
	damaged[len(damaged)-20] ^= 1
	step("wrong checksum", 0x800000, damaged, 0x600030)
	step("in the future", 0x900000, walOf(0x900000, []byte{0x10}, 0x900100), 0x600030)
	step("junk", 0xA00000, make([]byte, 9000), 0x600030)
	step("from the middle of a page", 0xB00008, walOf(0xB00000, []byte{0x10}, 0xA00030)[8:], 0x600030)
	step("older, after another beginning", 0x200000, walOf(0x200000, []byte{0x10}, 0x100030), 0x100030)
}

// The WAL that passes is walked without an allocation.
func TestRedoTrackerAllocatesNothing(t *testing.T) {
	tracker := redoTracker{identity: func() (protocol.Identity, bool) {
		return protocol.Identity{SegmentSize: 1 << 20, WALBlockSize: 8192}, true
	}}
	content := walOf(0x500000, []byte{0x10, 0x20, 0x30, 0x10}, 0x400028)
	if n := testing.AllocsPerRun(100, func() { tracker.observe(1, 0x500000, content) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
