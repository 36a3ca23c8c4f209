package model

// xactMain codes the main data of a commit or abort: its time, then what else there is.
//
// Source: PostgreSQL src/include/access/xact.h, xl_xact_commit (13-18).
func (m *model) xactMain(r *record, ctx uint32) {
	b, t := r.main, &m.rows
	t.time += uint64(m.Int(ctxTime, int64(le.Uint64(b)-t.time)))
	if m.decoding {
		le.PutUint64(b, t.time)
	}
	m.mark(costTime)
	m.bytes(ctx, b[8:], r.plan.main[min(8, len(r.plan.main)):])
	m.mark(costMain)
}

const ctxTime = 0x0901_0000
