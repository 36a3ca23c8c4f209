package wal

// Append appends the encoded record to dst and returns the extended buffer. TotalLength is computed and stored in r, CRC is
// taken from r: SetCRC on the result puts the right one in. Lengths of images, data and main data are those of the slices;
// holes of images that are compressed are spelled, others are implied. v decides what the image flags mean.
//
// It is the inverse of Decode for every record with Canonical set.
// Source: PostgreSQL src/backend/access/transam/xloginsert.c, XLogRecordAssemble (13-18).
func (r *Record) Append(dst []byte, v Version) []byte {
	dst = r.AppendHeaders(dst, v)
	for i := range r.Blocks {
		dst = append(dst, r.Blocks[i].Image...)
		dst = append(dst, r.Blocks[i].Data...)
	}
	return append(dst, r.Main...)
}

// AppendHeaders appends the record header and the block headers only: the first HeaderBytes bytes of the record.
func (r *Record) AppendHeaders(dst []byte, v Version) []byte {
	start, payload := len(dst), len(r.Main)
	dst = r.Header.Append(dst)
	for i := range r.Blocks {
		b := &r.Blocks[i]
		dst = b.appendHeader(dst, v)
		payload += len(b.Image) + len(b.Data)
	}
	if r.HasOrigin {
		dst = le.AppendUint16(append(dst, IDOrigin), r.Origin)
	}
	if r.HasTopXID {
		dst = le.AppendUint32(append(dst, IDTopXID), r.TopXID)
	}
	switch n := len(r.Main); {
	case n > 255:
		dst = le.AppendUint32(append(dst, IDMainLong), uint32(n))
	case n > 0:
		dst = append(dst, IDMainShort, uint8(n))
	}
	r.HeaderBytes = len(dst) - start
	r.TotalLength = uint32(r.HeaderBytes + payload)
	le.PutUint32(dst[start:], r.TotalLength)
	return dst
}

func (b *Block) appendHeader(dst []byte, v Version) []byte {
	dst = le.AppendUint16(append(dst, b.ID, uint8(b.Flags)), uint16(len(b.Data)))
	if b.HasImage() {
		dst = le.AppendUint16(dst, uint16(len(b.Image)))
		dst = append(le.AppendUint16(dst, b.HoleOffset), b.ImageFlags)
		if b.HasHole() && b.Compression(v) != Uncompressed {
			dst = le.AppendUint16(dst, b.HoleLength)
		}
	}
	if b.Flags&BlockSameRel == 0 {
		dst = le.AppendUint32(dst, b.Rel.Tablespace)
		dst = le.AppendUint32(dst, b.Rel.Database)
		dst = le.AppendUint32(dst, b.Rel.Number)
	}
	return le.AppendUint32(dst, b.Number)
}
