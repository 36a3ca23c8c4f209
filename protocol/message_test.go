package protocol_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"walproxy/protocol"
)

// at is a time with the resolution that messages have.
func at(r *rand.Rand) time.Time { return time.UnixMicro(946684800000000 + r.Int64N(1<<52)) }

func TestMessageBytes(t *testing.T) {
	when := time.Date(2000, 1, 1, 0, 0, 1, 2000, time.UTC)
	tests := map[string]struct{ got, want []byte }{
		"XLogData": {protocol.AppendXLogDataHeader(nil, 0x1122334455667788, 2, when),
			[]byte("w\x11\x22\x33\x44\x55\x66\x77\x88\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x0f\x42\x42")},
		"keepalive": {protocol.Keepalive{WALEnd: 3, SendTime: when, ReplyRequested: true}.Append(nil),
			[]byte("k\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x0f\x42\x42\x01")},
		"status": {protocol.Status{Write: 3, Flush: 2, Apply: 1, SendTime: when}.Append(nil),
			[]byte("r\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x0f\x42\x42\x00")},
		"feedback": {protocol.HSFeedback{SendTime: when, Xmin: 1, XminEpoch: 2, CatalogXmin: 3, CatalogEpoch: 4}.Append(nil),
			[]byte("h\x00\x00\x00\x00\x00\x0f\x42\x42\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04")},
	}
	for name, test := range tests {
		if !bytes.Equal(test.got, test.want) {
			t.Errorf("%s:\n got %x\nwant %x", name, test.got, test.want)
		}
	}
}

func TestMessageRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	lsn := func() protocol.LSN { return protocol.LSN(r.Uint64()) }
	for range 1000 {
		data := make([]byte, r.IntN(100))
		start, end, when := lsn(), lsn(), at(r)
		x, err := protocol.ParseXLogData(append(protocol.AppendXLogDataHeader([]byte{}, start, end, when), data...))
		if err != nil || x.Start != start || x.WALEnd != end || !x.SendTime.Equal(when) || !bytes.Equal(x.Data, data) {
			t.Fatalf("%+v, %v", x, err)
		}
		k := protocol.Keepalive{WALEnd: lsn(), SendTime: at(r), ReplyRequested: r.IntN(2) == 0}
		if got, err := protocol.ParseKeepalive(k.Append(nil)); err != nil || got != k {
			t.Fatalf("%+v, %v, want %+v", got, err, k)
		}
		s := protocol.Status{Write: lsn(), Flush: lsn(), Apply: lsn(), SendTime: at(r), ReplyRequested: r.IntN(2) == 0}
		if got, err := protocol.ParseStatus(s.Append(nil)); err != nil || got != s {
			t.Fatalf("%+v, %v, want %+v", got, err, s)
		}
		h := protocol.HSFeedback{SendTime: at(r), Xmin: r.Uint32(), XminEpoch: r.Uint32(), CatalogXmin: r.Uint32(), CatalogEpoch: r.Uint32()}
		if got, err := protocol.ParseHSFeedback(h.Append(nil)); err != nil || got != h {
			t.Fatalf("%+v, %v, want %+v", got, err, h)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(protocol.Status{Write: 1}.Append(nil))
	f.Add(protocol.Keepalive{ReplyRequested: true}.Append(nil))
	f.Add(protocol.HSFeedback{Xmin: 1}.Append(nil))
	f.Add(append(protocol.AppendXLogDataHeader(nil, 1, 2, time.Time{}), "wal"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := protocol.ParseXLogData(b); err == nil {
			same(t, append(protocol.AppendXLogDataHeader(nil, x.Start, x.WALEnd, x.SendTime), x.Data...), b)
		}
		if k, err := protocol.ParseKeepalive(b); err == nil {
			if last := b[len(b)-1]; last > 1 { // every value but 0 is true
				b = append(bytes.Clone(b[:len(b)-1]), 1)
			}
			same(t, k.Append(nil), b)
		}
		if s, err := protocol.ParseStatus(b); err == nil {
			if last := b[len(b)-1]; last > 1 {
				b = append(bytes.Clone(b[:len(b)-1]), 1)
			}
			same(t, s.Append(nil), b)
		}
		if h, err := protocol.ParseHSFeedback(b); err == nil {
			same(t, h.Append(nil), b)
		}
	})
}

func same(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("read and written again:\n got %x\nwant %x", got, want)
	}
}
