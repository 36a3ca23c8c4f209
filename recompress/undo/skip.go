package undo

import (
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// Skip tells the stream of wal, which follows what was undone and is carried otherwise. Nothing but the place is learnt from it.
func (e *Encoder) Skip(wal []byte) { e.skip(wal) }

// Skip tells the stream of wal, as the Encoder's Skip did.
func (d *Decoder) Skip(wal []byte) { d.skip(wal) }

// skip moves behind b, following page headers and lengths of records.
func (p *place) skip(b []byte) {
	for len(b) > 0 {
		if uint64(p.pos)%walPageBytes == 0 {
			if n := wal.PageHeaderBytes(b, p.pos); n > 0 {
				p.learn(b[:n])
				p.pos += protocol.LSN(n)
				b = b[n:]
				continue
			}
			p.rest = 0
		}
		n := p.plainBytes(len(b))
		if p.rest == 0 && uint64(p.pos)%alignment == 0 && n >= 4 {
			if size := int64(le.Uint32(b)); size >= recordHeader && size <= int64(n) {
				p.last = p.pos
				n = int(size)
			}
		}
		p.follow(b[:n])
		b = b[n:]
	}
}
