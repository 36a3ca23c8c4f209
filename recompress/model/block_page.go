package model

// Facts of data pages. Source: PostgreSQL src/include/storage/bufpage.h, itemid.h (13-18).
const (
	pageHeaderBytes = 24

	itemUnused   = 0 // LP_UNUSED
	itemNormal   = 1 // LP_NORMAL
	itemRedirect = 2 // LP_REDIRECT
	itemDead     = 3 // LP_DEAD
)

// linePointer splits an ItemIdData into offset, state and length.
func linePointer(v uint32) (offset int, state uint32, n int) {
	return int(v & 0x7fff), v >> 15 & 3, int(v >> 17)
}

// Places in the page header.
const (
	pdLSN      = 0
	pdChecksum = 8
	pdFlags    = 10
	pdLower    = 12
	pdUpper    = 14
	pdSpecial  = 16
	pdVersion  = 18
	pdPruneXid = 20

	btreeSpecial = 16 // BTPageOpaqueData, nbtree.h; hash and GiST pages have as much
)
