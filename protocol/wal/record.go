package wal

import (
	"hash/crc32"

	"walproxy/protocol"
)

// Limits of records.
//
// Source: PostgreSQL src/include/access/xlogrecord.h (13-18), SizeOfXLogRecord, XLR_MAX_BLOCK_ID, XLogRecordMaxSize (16-18;
// before, what palloc allows).
const (
	RecordHeaderBytes = 24
	MaxRecordBytes    = 1 << 30
	MaxBlocks         = 33
	MaxBlockID        = 32

	DefaultBlockSize = 8192
	maxBlockSize     = 32 << 10
)

// Low bits of Header.Info; the high half belongs to the resource manager.
const (
	InfoSpecialRelUpdate = 0x01
	InfoCheckConsistency = 0x02
	infoRmgrMask         = 0xF0
)

// Header begins each record:
//
//	 0  u32 total length, this header included, padding not    4  u32 xid
//	 8  u64 start of the previous record
//	16  u8 info   17  u8 resource manager   18  2 zero bytes   20  u32 CRC-32C of the bytes behind the header, then of 0 to 19
//
// Source: PostgreSQL src/include/access/xlogrecord.h, XLogRecord (13-18).
type Header struct {
	TotalLength uint32
	XID         uint32
	Prev        protocol.LSN
	Info        uint8
	Rmgr        Rmgr
	CRC         uint32
}

// ParseHeader decodes the header of rec without checking anything. Errors: ErrShort.
func ParseHeader(rec []byte) (Header, error) {
	var h Header
	if len(rec) < RecordHeaderBytes {
		return h, ErrShort
	}
	h.parse(rec)
	return h, nil
}

func (h *Header) parse(rec []byte) {
	_ = rec[RecordHeaderBytes-1]
	*h = Header{
		TotalLength: le.Uint32(rec), XID: le.Uint32(rec[4:]), Prev: protocol.LSN(le.Uint64(rec[8:])),
		Info: rec[16], Rmgr: Rmgr(rec[17]), CRC: le.Uint32(rec[20:]),
	}
}

// Append appends the 24 bytes of the encoded header to dst and returns the extended buffer.
func (h *Header) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, h.TotalLength)
	dst = le.AppendUint32(dst, h.XID)
	dst = le.AppendUint64(dst, uint64(h.Prev))
	dst = append(dst, h.Info, uint8(h.Rmgr), 0, 0)
	return le.AppendUint32(dst, h.CRC)
}

// Class returns what the record means to a carrier of WAL.
func (h *Header) Class() Class { return ClassOf(h.Rmgr, h.Info) }

// Record is a decoded record. Decode fills it and reuses Blocks; every slice of bytes points into the decoded record.
type Record struct {
	Header
	Blocks []Block // ids ascend

	HasOrigin bool
	Origin    uint16 // replication origin
	HasTopXID bool
	TopXID    uint32 // top-level transaction of a subtransaction (14-18)
	Main      []byte

	// Canonical tells that Append gives back the decoded bytes. It is so for every record that a server writes; a reader also
	// accepts others: unused bytes that are not zero, headers in another order, lengths spelled long.
	Canonical bool
	// HeaderBytes is the length of the record header and all block headers: where the payload starts.
	HeaderBytes int
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC returns the checksum that belongs into the header of rec, a whole record of at least 24 bytes.
//
// Source: PostgreSQL src/backend/access/transam/xlogreader.c, ValidXLogRecord (13-18).
func CRC(rec []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, rec[RecordHeaderBytes:]), castagnoli, rec[:20])
}

// SetCRC stores the checksum in the header of rec, a whole record of at least 24 bytes.
func SetCRC(rec []byte) { le.PutUint32(rec[20:], CRC(rec)) }
