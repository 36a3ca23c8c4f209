package model

// Resource managers and operations whose records are understood. Source: PostgreSQL src/include/access/rmgrlist.h and the
// *_xlog.h headers (13-18).
const (
	rmXlog  = 0
	rmXact  = 1
	rmHeap2 = 9
	rmHeap  = 10
	rmBtree = 11
	rmHash  = 12
	rmGin   = 13

	xactCommit = 0x00
	xactAbort  = 0x20

	heapInsert    = rmHeap << 8
	heapDelete    = rmHeap<<8 | 0x10
	heapUpdate    = rmHeap<<8 | 0x20
	heapHotUpdate = rmHeap<<8 | 0x40
	heapLock      = rmHeap<<8 | 0x60
	heapInit      = 0x80 // XLOG_HEAP_INIT_PAGE

	heapMultiInsert = rmHeap2<<8 | 0x50
	heapPrune       = rmHeap2<<8 | 0x10

	hashInsert    = rmHash<<8 | 0x20
	ginUpdateMeta = rmGin<<8 | 0x60

	btreeSplitLeft  = 0x30 // the new item goes to the left page
	btreeSplitRight = 0x40
)
