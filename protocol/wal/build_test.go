package wal_test

import (
	"encoding/binary"
	"math/rand/v2"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// builder writes WAL the way a server does.
type builder struct {
	version   wal.Version
	pageSize  uint64
	segment   uint64
	timeline  protocol.Timeline
	system    protocol.SystemID
	flags     wal.PageFlags // for the next page
	start     protocol.LSN
	pos, last protocol.LSN
	out       []byte
	pages     int
}

func newBuilder(version wal.Version, pageSize, segment uint64, start protocol.LSN) *builder {
	return &builder{version: version, pageSize: pageSize, segment: segment, timeline: 1, system: 7, start: start, pos: start}
}

func (b *builder) options() wal.Options {
	return wal.Options{Stream: wal.Stream{PageSize: uint32(b.pageSize), SegmentSize: uint32(b.segment)}}
}

// page begins a page on which left bytes of a record go on.
func (b *builder) page(left int) {
	h := wal.PageHeader{
		Version: b.version, Flags: wal.BackupRemovable | b.flags, Timeline: b.timeline, Addr: b.pos, RemLen: uint32(left),
	}
	b.flags = 0
	if left > 0 {
		h.Flags |= wal.FirstIsContrecord
	}
	if uint64(b.pos)%b.segment == 0 {
		h.Flags |= wal.LongHeader
		h.SystemID, h.SegmentSize, h.PageSize = b.system, uint32(b.segment), uint32(b.pageSize)
	}
	b.out = h.Append(b.out)
	b.pos += protocol.LSN(h.Bytes())
	b.pages++
}

// room begins a page if the position is at one, and returns how much content fits on it.
func (b *builder) room(left int) int {
	if uint64(b.pos)%b.pageSize == 0 {
		b.page(left)
	}
	return int(uint64(b.pos.Next(b.pageSize) - b.pos))
}

// content lays p over pages and returns where it starts.
func (b *builder) content(p []byte) protocol.LSN {
	b.room(0)
	start := b.pos
	for len(p) > 0 {
		n := min(len(p), b.room(len(p)))
		b.raw(p[:n])
		p = p[n:]
	}
	return start
}

func (b *builder) raw(p []byte) {
	b.out = append(b.out, p...)
	b.pos += protocol.LSN(len(p))
}

// record appends r with xl_prev, checksum and padding, and returns where it starts and ends, and its bytes.
func (b *builder) record(r *wal.Record) (start, end protocol.LSN, bytes []byte) {
	b.room(0)
	r.Prev = b.last
	rec := r.Append(nil, b.version)
	wal.SetCRC(rec)
	b.last = b.content(rec)
	b.raw(make([]byte, -len(rec)&7))
	return b.last, b.pos, rec
}

// zeros fills up to lsn without page headers.
func (b *builder) zeros(lsn protocol.LSN) { b.raw(make([]byte, lsn-b.pos)) }

// simple is a record of n bytes in all, without blocks; n is 24, or above 25.
func simple(rmgr wal.Rmgr, info uint8, n int) *wal.Record {
	r := &wal.Record{Header: wal.Header{Rmgr: rmgr, Info: info, XID: 1000}}
	switch {
	case n > 24+2+255:
		r.Main = make([]byte, n-24-5)
	case n > 24:
		r.Main = make([]byte, n-24-2)
	}
	for i := range r.Main {
		r.Main[i] = byte(i*7 + n)
	}
	return r
}

func switchRecord() *wal.Record { return simple(wal.RmgrXLOG, 0x40, 24) }

// randomRecord returns a valid record of version v, as a server may write it.
func randomRecord(rng *rand.Rand, v wal.Version) *wal.Record {
	r := &wal.Record{Header: wal.Header{Rmgr: wal.RmgrHeap, Info: uint8(rng.UintN(256)), XID: rng.Uint32()}}
	if v >= wal.PG15 && rng.IntN(8) == 0 {
		r.Rmgr = wal.Rmgr(128 + rng.IntN(128))
	}
	for id, n := rng.IntN(3), rng.IntN(4); n > 0 && id <= wal.MaxBlockID; id, n = id+1+rng.IntN(12), n-1 {
		r.Blocks = append(r.Blocks, randomBlock(rng, v, uint8(id), r.Blocks))
	}
	r.HasOrigin, r.HasTopXID = rng.IntN(4) == 0, v >= wal.PG14 && rng.IntN(4) == 0
	if r.HasOrigin {
		r.Origin = uint16(rng.Uint32())
	}
	if r.HasTopXID {
		r.TopXID = rng.Uint32()
	}
	r.Main = randomBytes(rng, []int{0, 3, 40, 255, 256, 3000}[rng.IntN(6)])
	return r
}

func randomBlock(rng *rand.Rand, v wal.Version, id uint8, before []wal.Block) wal.Block {
	b := wal.Block{ID: id, Flags: wal.BlockFlags(rng.IntN(4)), Number: rng.Uint32()}
	b.Rel = wal.Rel{Tablespace: 1663, Database: 5, Number: 16384 + uint32(rng.IntN(3))}
	if len(before) > 0 && rng.IntN(2) == 0 {
		b.Flags |= wal.BlockSameRel
		b.Rel = before[len(before)-1].Rel
	}
	if rng.IntN(2) == 0 {
		b.Flags |= wal.BlockHasData
		b.Data = randomBytes(rng, 1+rng.IntN(200))
	}
	if rng.IntN(3) > 0 {
		return b
	}
	b.Flags |= wal.BlockHasImage
	hole, compressed := rng.IntN(2) == 0, rng.IntN(2) == 0
	length := wal.DefaultBlockSize
	if hole {
		b.ImageFlags |= 1
		b.HoleOffset, b.HoleLength = uint16(24+rng.IntN(100)), uint16(1+rng.IntN(8000))
		length -= int(b.HoleLength)
	}
	if compressed {
		length = rng.IntN(length)
		if v < wal.PG15 {
			b.ImageFlags |= 2
		} else {
			b.ImageFlags |= 4 << rng.IntN(3)
		}
	}
	b.Image = randomBytes(rng, length)
	return b
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// withCRC returns a copy of rec with edit applied, a length that is right and the checksum that belongs to it.
func withCRC(rec []byte, edit func(rec []byte) []byte) []byte {
	rec = edit(append([]byte(nil), rec...))
	if len(rec) >= 24 {
		binary.LittleEndian.PutUint32(rec, uint32(len(rec)))
		wal.SetCRC(rec)
	}
	return rec
}
