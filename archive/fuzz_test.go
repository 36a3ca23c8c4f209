package archive

import (
	"testing"

	"walproxy/protocol/link"
)

func FuzzDecodeHeader(f *testing.F) {
	h := Header{Identity: Identity{SystemID: 1, Major: 15, SegmentSize: 1 << 24, WALBlockSize: 8192},
		Span: Span{Timeline: 1, Start: 0, End: 100}, Windows: []Window{{RawBytes: 100, RawSum: 5, Bytes: 300, Offset: int64(headBytes(1))}}}
	h.Bytes, h.RawSum = int64(headBytes(1))+300, 5
	f.Add(h.Append(nil))
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4 { // the checksum stops nearly everything else
			b = append(b[:len(b)-4:len(b)-4], 0, 0, 0, 0)
			le.PutUint32(b[len(b)-4:], link.Checksum(b[:len(b)-4]))
		}
		h, err := DecodeHeader(b)
		if err != nil {
			return
		}
		again, err := DecodeHeader(h.Append(nil))
		if err != nil || again.Span != h.Span || len(again.Windows) != len(h.Windows) {
			t.Fatalf("%+v, encoded again: %v", h, err)
		}
	})
}

func FuzzDecodeIdentity(f *testing.F) {
	f.Add(Identity{SystemID: 1, Major: 15, SegmentSize: 1 << 24, WALBlockSize: 8192}.encode())
	f.Add([]byte(`{"archive_version": 2}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b)
		if err != nil {
			return
		}
		if again, err := decodeIdentity(id.encode()); err != nil || again != id {
			t.Fatalf("%s, encoded again: %v", id, err)
		}
	})
}
