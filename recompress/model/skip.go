package model

import (
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// Skip tells the stream of wal, which follows what was coded and is carried otherwise. Nothing but the place is learnt from it.
func (e *Encoder) Skip(wal []byte) { e.m.page.skip(wal) }

// Skip tells the stream of wal, as the Encoder's Skip did.
func (d *Decoder) Skip(wal []byte) { d.m.page.skip(wal) }

// skip moves behind b, following page headers and lengths of records.
func (p *pageState) skip(b []byte) {
	for len(b) > 0 {
		if uint64(p.pos)%walPageBytes == 0 {
			if n := wal.PageHeaderBytes(b, p.pos); n > 0 {
				p.adopt(b[:n])
				b = b[n:]
				continue
			}
			p.rest = 0
		}
		n := min(walPageBytes-int(uint64(p.pos)%walPageBytes), len(b))
		switch padding := int(-uint64(p.pos) & (alignment - 1)); {
		case p.rest > 0:
			n = int(min(int64(n), p.rest))
			p.rest -= int64(n)
		case padding > 0:
			n = min(n, padding)
		case n >= 4:
			if size := int64(le.Uint32(b)); size >= recordHeader && size < 1<<30 {
				p.last = p.pos
				n = int(min(int64(n), size))
				p.rest = size - int64(n)
			}
		}
		p.pos += protocol.LSN(n)
		b = b[n:]
	}
}

// adopt takes over what a page header says, and moves behind it.
func (p *pageState) adopt(h []byte) {
	p.magic, p.info, p.tli, p.rest = le.Uint16(h), le.Uint16(h[2:]), le.Uint32(h[4:]), int64(le.Uint32(h[16:]))
	if p.info&infoContinue == 0 {
		p.rest = 0
	}
	if p.info&infoLong != 0 {
		p.system, p.segment, p.walBlock = le.Uint64(h[24:]), le.Uint32(h[32:]), le.Uint32(h[36:])
	}
	p.pos += protocol.LSN(len(h))
}
