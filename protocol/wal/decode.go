package wal

// Ids of block headers that are no blocks.
//
// Source: PostgreSQL src/include/access/xlogrecord.h, XLR_BLOCK_ID_* (13-18).
const (
	IDMainShort = 255
	IDMainLong  = 254
	IDOrigin    = 253
	IDTopXID    = 252 // 14-18
)

// Format is what the decoder has to know and the record does not say.
type Format struct {
	Version   Version // of the page on which the record starts
	BlockSize int     // block_size of the server; 0: DefaultBlockSize
}

// Decode takes rec, a whole record without padding, apart into dst, whose Blocks it reuses. All slices of dst point into rec.
// Every rule of the server's reader is checked, the checksum first. After an error dst holds nothing of use.
//
// Errors: *RecordError, with the rule and the place; *VersionError if the version is unknown.
// Source: PostgreSQL src/backend/access/transam/xlogreader.c, ValidXLogRecord, DecodeXLogRecord, RestoreBlockImage (13-18).
func Decode(rec []byte, f Format, dst *Record) error {
	if len(rec) >= RecordHeaderBytes && CRC(rec) != le.Uint32(rec[20:]) {
		return &RecordError{Rule: RuleCRC, Offset: 20}
	}
	return DecodeUnchecked(rec, f, dst)
}

// DecodeUnchecked is Decode without the checksum.
func DecodeUnchecked(rec []byte, f Format, dst *Record) error {
	if !f.Version.Known() {
		return &VersionError{}
	}
	if f.BlockSize <= 0 || f.BlockSize > maxBlockSize {
		f.BlockSize = DefaultBlockSize
	}
	if len(rec) < RecordHeaderBytes || uint64(le.Uint32(rec)) != uint64(len(rec)) {
		return &RecordError{Rule: RuleLength}
	}
	d := decoder{rec: rec, format: f, dst: dst, at: RecordHeaderBytes}
	if rule := d.run(); rule != RuleNone {
		return &RecordError{Rule: rule, Offset: d.at}
	}
	return nil
}

type decoder struct {
	rec    []byte
	format Format
	dst    *Record
	at     int // offset of the next header
	total  int // payload that the headers announced
	rank   int // of the last header: 0 block, 1 origin, 2 top-level xid, 3 main data
	main   int // length of the main data
}

func (d *decoder) run() Rule {
	r := d.dst
	*r = Record{Blocks: r.Blocks[:0]}
	r.Header.parse(d.rec)
	if !d.format.Version.ValidRmgr(r.Rmgr) {
		d.at = 17
		return RuleRmgr
	}
	r.Canonical = d.rec[18] == 0 && d.rec[19] == 0
	for d.rank < 3 && len(d.rec)-d.at > d.total {
		var rule Rule
		switch id := d.rec[d.at]; {
		case id <= MaxBlockID:
			rule = d.block(id)
		default:
			rule = d.special(id)
		}
		if rule != RuleNone {
			return rule
		}
	}
	if len(d.rec)-d.at != d.total {
		return RuleDataLength
	}
	d.payload()
	return RuleNone
}

// special reads a header that is not a block's.
func (d *decoder) special(id uint8) Rule {
	r, b := d.dst, d.rec[d.at:]
	rank, n := 3, 0
	switch id {
	case IDMainShort:
		n = 2
	case IDMainLong:
		n = 5
	case IDOrigin:
		rank, n = 1, 3
	case IDTopXID:
		if !d.format.Version.hasTopLevelXID() {
			return RuleBlockID
		}
		rank, n = 2, 5
	default:
		return RuleBlockID
	}
	if len(b) < n {
		return RuleShort
	}
	switch id {
	case IDMainShort:
		d.main = int(b[1])
		r.Canonical = r.Canonical && d.main > 0
	case IDMainLong:
		length := le.Uint32(b[1:])
		if uint64(length) > uint64(len(d.rec)) {
			return RuleDataLength
		}
		d.main = int(length)
		r.Canonical = r.Canonical && d.main > 255
	case IDOrigin:
		r.HasOrigin, r.Origin = true, le.Uint16(b[1:])
	case IDTopXID:
		r.HasTopXID, r.TopXID = true, le.Uint32(b[1:])
	}
	r.Canonical = r.Canonical && rank > d.rank
	d.rank = rank
	d.at += n
	d.total += d.main
	return RuleNone
}

// block reads the header of a block. Image and Data get their bytes from payload.
func (d *decoder) block(id uint8) Rule {
	b := d.rec[d.at:]
	if len(b) < 4 {
		return RuleShort
	}
	block, previous := d.slot()
	*block = Block{ID: id, Flags: BlockFlags(b[1]), dataBytes: le.Uint16(b[2:])}
	switch {
	case previous != nil && id <= previous.ID:
		return RuleBlockOrder
	case (block.Flags&BlockHasData != 0) != (block.dataBytes > 0):
		return RuleDataFlag
	}
	n := 4
	if block.HasImage() {
		var rule Rule
		if n, rule = d.image(b, block); rule != RuleNone {
			return rule
		}
	}
	switch {
	case block.Flags&BlockSameRel == 0:
		if len(b) < n+12 {
			return RuleShort
		}
		block.Rel = Rel{Tablespace: le.Uint32(b[n:]), Database: le.Uint32(b[n+4:]), Number: le.Uint32(b[n+8:])}
		n += 12
	case previous == nil:
		return RuleSameRel
	default:
		block.Rel = previous.Rel
	}
	if len(b) < n+4 {
		return RuleShort
	}
	block.Number = le.Uint32(b[n:])
	d.at += n + 4
	d.total += int(block.imageBytes) + int(block.dataBytes)
	d.dst.Canonical = d.dst.Canonical && d.rank == 0
	return RuleNone
}

// slot returns a new element of Blocks and the one before it, nil if there is none.
func (d *decoder) slot() (block, previous *Block) {
	blocks := d.dst.Blocks
	n := len(blocks)
	if n < cap(blocks) {
		blocks = blocks[:n+1]
	} else {
		blocks = append(blocks, Block{})
	}
	d.dst.Blocks = blocks
	if n > 0 {
		previous = &blocks[n-1]
	}
	return &blocks[n], previous
}

// image reads the image part of the block header b and returns the length of the header so far.
func (d *decoder) image(b []byte, block *Block) (n int, rule Rule) {
	if len(b) < 9 {
		return 0, RuleShort
	}
	n = 9
	block.imageBytes, block.HoleOffset, block.ImageFlags = le.Uint16(b[4:]), le.Uint16(b[6:]), b[8]
	length, size, method := int(block.imageBytes), d.format.BlockSize, block.Compression(d.format.Version)
	hole := 0
	switch {
	case method == severalMethods:
		return 0, RuleCompression
	case length > size, length == size && (method != Uncompressed || block.HasHole()):
		return 0, RuleImageLength
	case method == Uncompressed:
		hole = size - length
	case block.HasHole():
		if len(b) < n+2 {
			return 0, RuleShort
		}
		hole = int(le.Uint16(b[n:]))
		n += 2
	}
	block.HoleLength = uint16(hole)
	switch {
	case block.HasHole() && (block.HoleOffset == 0 || hole == 0 || int(block.HoleOffset)+hole > size):
		return 0, RuleHole
	case !block.HasHole() && (block.HoleOffset != 0 || hole != 0):
		return 0, RuleHole
	}
	return n, RuleNone
}

// payload hands the bytes behind the headers out; there are as many as the headers announced.
func (d *decoder) payload() {
	r := d.dst
	r.HeaderBytes = d.at
	rest := d.rec[d.at:]
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if n := int(b.imageBytes); n > 0 {
			b.Image, rest = rest[:n:n], rest[n:]
		}
		if n := int(b.dataBytes); n > 0 {
			b.Data, rest = rest[:n:n], rest[n:]
		}
	}
	r.Main = rest
}
