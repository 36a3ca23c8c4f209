package slots

import "walproxy/protocol"

// Feedback returns what to tell the upstream: for xmin and catalog_xmin each the oldest that a live consumer asks for, or
// none. It is false while no consumer has ever sent feedback; after that, an empty message takes back what was asked for.
//
// A consumer's request ends with its stream, as that of a standby without a slot does.
//
// Source: PostgreSQL src/backend/replication/walsender.c, ProcessStandbyHSFeedbackMessage (13-18).
func (r *Registry) Feedback() (protocol.HSFeedback, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var xmin, catalog fullXID
	for _, c := range r.consumers {
		xmin = xmin.older(newFullXID(c.feedback.XminEpoch, c.feedback.Xmin))
		catalog = catalog.older(newFullXID(c.feedback.CatalogEpoch, c.feedback.CatalogXmin))
	}
	return protocol.HSFeedback{
		Xmin: uint32(xmin), XminEpoch: uint32(xmin >> 32), CatalogXmin: uint32(catalog), CatalogEpoch: uint32(catalog >> 32),
	}, r.heard
}

// fullXID is a transaction id with its epoch in front, which orders ids over the wraparound. 0 is none.
type fullXID uint64

// newFullXID returns none for the xids below 3, which no transaction has.
//
// Source: PostgreSQL src/include/access/transam.h, FirstNormalTransactionId (13-18).
func newFullXID(epoch, xid uint32) fullXID {
	if xid < 3 {
		return 0
	}
	return fullXID(epoch)<<32 | fullXID(xid)
}

func (x fullXID) older(y fullXID) fullXID {
	if x == 0 || y != 0 && y < x {
		return y
	}
	return x
}
