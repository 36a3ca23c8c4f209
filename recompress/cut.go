package recompress

import (
	"encoding/binary"

	"walproxy/protocol"
)

// Facts of WAL page headers. Source: PostgreSQL src/include/access/xlog_internal.h, XLogPageHeaderData, XLogLongPageHeaderData
// (13-18).
const (
	pageHeaderShort = 24
	pageHeaderLong  = 40
	pageContinues   = 1 // XLP_FIRST_IS_CONTRECORD
	pageLongHeader  = 2 // XLP_LONG_HEADER
)

// recordStart returns the first place from at on, before limit, where a record begins in wal, which begins at start in pages of
// pageBytes: as the header of a page says. It is at if no page says so. A codec that knows records does best with whole ones.
func recordStart(wal []byte, start protocol.LSN, pageBytes, at, limit int) int {
	if pageBytes < pageHeaderLong {
		return at
	}
	limit = min(limit, len(wal))
	skip := int((uint64(pageBytes) - (uint64(start)+uint64(at))%uint64(pageBytes)) % uint64(pageBytes))
	for page := at + skip; page+pageHeaderLong <= limit; page += pageBytes {
		h := wal[page:]
		if binary.LittleEndian.Uint64(h[8:]) != uint64(start)+uint64(page) {
			return at
		}
		info, rest := binary.LittleEndian.Uint16(h[2:]), binary.LittleEndian.Uint32(h[16:])
		if info&pageContinues == 0 {
			return page
		}
		header := pageHeaderShort
		if info&pageLongHeader != 0 {
			header = pageHeaderLong
		}
		if end := header + int((rest+7)&^7); rest < uint32(pageBytes) && end < pageBytes && page+end < limit {
			return page + end
		}
	}
	return at
}
