package model

// parse takes r.raw apart. It reports false if the record breaks a rule of the format.
//
// Source: PostgreSQL src/backend/access/transam/xlogreader.c, DecodeXLogRecord (13-18).
func (m *model) parse(r *record) bool {
	b := r.raw
	r.xid, r.prev, r.info, r.rmid = le.Uint32(b[4:]), le.Uint64(b[8:]), b[16], b[17]
	r.n, r.shape, r.mainBytes, r.origin, r.topXid = 0, 0, 0, 0, 0
	at, payload := recordHeader, 0
	for len(b)-at > payload {
		switch id := b[at]; {
		case id == idMainShort:
			if len(b)-at < 2 || b[at+1] == 0 {
				return false
			}
			r.shape |= shapeMainShort
			r.mainBytes = int(b[at+1])
			at += 2
			return m.slice(r, at, payload+r.mainBytes)
		case id == idMainLong:
			if len(b)-at < 5 || le.Uint32(b[at+1:]) > maxRecordSize {
				return false
			}
			r.shape |= shapeMainLong
			r.mainBytes = int(le.Uint32(b[at+1:]))
			at += 5
			return m.slice(r, at, payload+r.mainBytes)
		case id == idOrigin:
			if len(b)-at < 3 || r.shape != 0 {
				return false
			}
			r.shape |= shapeOrigin
			r.origin = le.Uint16(b[at+1:])
			at += 3
		case id == idTopXid:
			if len(b)-at < 5 || r.shape&shapeTopXid != 0 {
				return false
			}
			r.shape |= shapeTopXid
			r.topXid = le.Uint32(b[at+1:])
			at += 5
		case id <= maxBlockID && r.n <= maxBlockID && r.shape == 0:
			n := m.parseBlock(r, b[at:])
			if n == 0 {
				return false
			}
			k := &r.blocks[r.n-1]
			payload += k.dataBytes + k.imageBytes
			at += n
		default:
			return false
		}
	}
	return m.slice(r, at, payload)
}

// parseBlock reads one block header and returns its length, or 0 if it is none.
func (m *model) parseBlock(r *record, b []byte) int {
	k := &r.blocks[r.n]
	if len(b) < 4 || r.n > 0 && b[0] <= r.blocks[r.n-1].id {
		return 0
	}
	*k = block{id: b[0], fork: b[1], dataBytes: int(le.Uint16(b[2:]))}
	if (k.fork&forkData != 0) != (k.dataBytes > 0) {
		return 0
	}
	at := 4
	if k.hasImage() {
		if len(b) < at+5 {
			return 0
		}
		k.imageBytes, k.holeOffset, k.imageInfo = int(le.Uint16(b[at:])), int(le.Uint16(b[at+2:])), b[at+4]
		at += 5
		switch {
		case k.imageInfo&m.compressedMask() != 0:
			if k.imageInfo&imageHole != 0 {
				if len(b) < at+2 {
					return 0
				}
				k.holeBytes = int(le.Uint16(b[at:]))
				at += 2
			}
		case k.imageInfo&imageHole != 0:
			if k.holeBytes = blockBytes - k.imageBytes; k.holeBytes < 0 {
				return 0
			}
		}
	}
	if k.fork&forkSameRel == 0 {
		if len(b) < at+12 {
			return 0
		}
		copy(k.relation[:], b[at:])
		at += 12
	} else if r.n == 0 {
		return 0
	} else {
		k.relation = r.blocks[r.n-1].relation
	}
	if len(b) < at+4 {
		return 0
	}
	k.number = le.Uint32(b[at:])
	r.n++
	return at + 4
}

// slice gives the parts of the record their bytes; the payload begins at at.
func (m *model) slice(r *record, at, payload int) bool {
	if len(r.raw)-at != payload {
		return false
	}
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		k.image, at = r.raw[at:at+k.imageBytes:at+k.imageBytes], at+k.imageBytes
		k.data, at = r.raw[at:at+k.dataBytes:at+k.dataBytes], at+k.dataBytes
	}
	r.main = r.raw[at:]
	return true
}

// headBytes returns the length of the record's header and block headers.
func (r *record) headBytes(compressed byte) int {
	n := recordHeader
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		n += 8
		if k.hasImage() {
			n += 5
			if k.imageInfo&imageHole != 0 && k.imageInfo&compressed != 0 {
				n += 2
			}
		}
		if k.fork&forkSameRel == 0 {
			n += 12
		}
	}
	if r.shape&shapeOrigin != 0 {
		n += 3
	}
	if r.shape&shapeTopXid != 0 {
		n += 5
	}
	if r.shape&shapeMainShort != 0 {
		n += 2
	}
	if r.shape&shapeMainLong != 0 {
		n += 5
	}
	return n
}

// writeHead writes everything in front of the payload of a record of size bytes, xl_crc excepted, to b.
func (r *record) writeHead(b []byte, compressed byte, size int) {
	le.PutUint32(b, uint32(size))
	le.PutUint32(b[4:], r.xid)
	le.PutUint64(b[8:], r.prev)
	le.PutUint32(b[16:], uint32(r.info)|uint32(r.rmid)<<8)
	at := recordHeader
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		le.PutUint32(b[at:], uint32(k.id)|uint32(k.fork)<<8|uint32(k.dataBytes)<<16)
		at += 4
		if k.hasImage() {
			le.PutUint16(b[at:], uint16(k.imageBytes))
			le.PutUint16(b[at+2:], uint16(k.holeOffset))
			b[at+4] = k.imageInfo
			at += 5
			if k.imageInfo&imageHole != 0 && k.imageInfo&compressed != 0 {
				le.PutUint16(b[at:], uint16(k.holeBytes))
				at += 2
			}
		}
		if k.fork&forkSameRel == 0 {
			at += copy(b[at:], k.relation[:])
		}
		le.PutUint32(b[at:], k.number)
		at += 4
	}
	r.writeTail(b[at:])
}

// writeTail writes what lies between the block headers and the payload.
func (r *record) writeTail(b []byte) {
	b = b[:0]
	if r.shape&shapeOrigin != 0 {
		b = le.AppendUint16(append(b, idOrigin), r.origin)
	}
	if r.shape&shapeTopXid != 0 {
		b = le.AppendUint32(append(b, idTopXid), r.topXid)
	}
	if r.shape&shapeMainShort != 0 {
		b = append(b, idMainShort, byte(r.mainBytes))
	}
	if r.shape&shapeMainLong != 0 {
		le.AppendUint32(append(b, idMainLong), uint32(r.mainBytes))
	}
}
