package protocol

import (
	"encoding/binary"
	"time"
)

// Messages of streaming replication: bodies of CopyData, told apart by their first byte. Integers are big-endian.
//
// Source: PostgreSQL src/backend/replication/walsender.c and walreceiver.c (13-18).
const (
	MessageXLogData   = 'w'
	MessageKeepalive  = 'k'
	MessageStatus     = 'r'
	MessageHSFeedback = 'h'

	// XLogDataHeaderBytes precede the WAL in a MessageXLogData.
	XLogDataHeaderBytes = 1 + 8 + 8 + 8

	keepaliveBytes  = 1 + 8 + 8 + 1
	statusBytes     = 1 + 8 + 8 + 8 + 8 + 1
	hsFeedbackBytes = 1 + 8 + 4 + 4 + 4 + 4
)

var be = binary.BigEndian

// XLogData carries WAL from server to client.
type XLogData struct {
	Start    LSN // of Data
	WALEnd   LSN // how far the server could send now
	SendTime time.Time
	Data     []byte
}

// AppendXLogDataHeader appends the message up to, not including, its WAL to dst and returns the extended buffer.
func AppendXLogDataHeader(dst []byte, start, walEnd LSN, sendTime time.Time) []byte {
	dst = append(dst, MessageXLogData)
	dst = be.AppendUint64(dst, uint64(start))
	dst = be.AppendUint64(dst, uint64(walEnd))
	return appendTime(dst, sendTime)
}

// ParseXLogData reads a whole message. Data is a slice of b.
func ParseXLogData(b []byte) (XLogData, error) {
	if len(b) < XLogDataHeaderBytes || b[0] != MessageXLogData {
		return XLogData{}, malformed("XLogData", b)
	}
	return XLogData{Start: LSN(be.Uint64(b[1:])), WALEnd: LSN(be.Uint64(b[9:])), SendTime: parseTime(b[17:]), Data: b[25:]}, nil
}

// Keepalive is the server's sign of life.
type Keepalive struct {
	WALEnd         LSN // end of the WAL sent so far
	SendTime       time.Time
	ReplyRequested bool
}

// Append appends the encoded message to dst and returns the extended buffer.
func (k Keepalive) Append(dst []byte) []byte {
	dst = append(dst, MessageKeepalive)
	dst = be.AppendUint64(dst, uint64(k.WALEnd))
	return appendBool(appendTime(dst, k.SendTime), k.ReplyRequested)
}

// ParseKeepalive reads a whole message.
func ParseKeepalive(b []byte) (Keepalive, error) {
	if len(b) != keepaliveBytes || b[0] != MessageKeepalive {
		return Keepalive{}, malformed("keepalive", b)
	}
	return Keepalive{WALEnd: LSN(be.Uint64(b[1:])), SendTime: parseTime(b[9:]), ReplyRequested: b[17] != 0}, nil
}

// Status is a standby's report: behind the last byte it has written, flushed and applied. Zero means "not known".
type Status struct {
	Write, Flush, Apply LSN
	SendTime            time.Time
	ReplyRequested      bool
}

// Append appends the encoded message to dst and returns the extended buffer.
func (s Status) Append(dst []byte) []byte {
	dst = append(dst, MessageStatus)
	dst = be.AppendUint64(dst, uint64(s.Write))
	dst = be.AppendUint64(dst, uint64(s.Flush))
	dst = be.AppendUint64(dst, uint64(s.Apply))
	return appendBool(appendTime(dst, s.SendTime), s.ReplyRequested)
}

// ParseStatus reads a whole message.
func ParseStatus(b []byte) (Status, error) {
	if len(b) != statusBytes || b[0] != MessageStatus {
		return Status{}, malformed("standby status update", b)
	}
	return Status{
		Write: LSN(be.Uint64(b[1:])), Flush: LSN(be.Uint64(b[9:])), Apply: LSN(be.Uint64(b[17:])),
		SendTime: parseTime(b[25:]), ReplyRequested: b[33] != 0,
	}, nil
}

// HSFeedback is a hot standby's request to keep row versions: the oldest xid its queries see, with the epoch of that xid.
// Xid 0 means "none".
type HSFeedback struct {
	SendTime                  time.Time
	Xmin, XminEpoch           uint32
	CatalogXmin, CatalogEpoch uint32
}

// Append appends the encoded message to dst and returns the extended buffer.
func (h HSFeedback) Append(dst []byte) []byte {
	dst = appendTime(append(dst, MessageHSFeedback), h.SendTime)
	for _, v := range [...]uint32{h.Xmin, h.XminEpoch, h.CatalogXmin, h.CatalogEpoch} {
		dst = be.AppendUint32(dst, v)
	}
	return dst
}

// ParseHSFeedback reads a whole message.
func ParseHSFeedback(b []byte) (HSFeedback, error) {
	if len(b) != hsFeedbackBytes || b[0] != MessageHSFeedback {
		return HSFeedback{}, malformed("hot standby feedback", b)
	}
	return HSFeedback{
		SendTime: parseTime(b[1:]), Xmin: be.Uint32(b[9:]), XminEpoch: be.Uint32(b[13:]),
		CatalogXmin: be.Uint32(b[17:]), CatalogEpoch: be.Uint32(b[21:]),
	}, nil
}

func malformed(what string, b []byte) error {
	return Errorf(CodeProtocolViolation, "malformed %s message of %d bytes", what, len(b))
}

// epoch is the zero of PostgreSQL's timestamps, which count microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func appendTime(dst []byte, t time.Time) []byte {
	return be.AppendUint64(dst, uint64(t.UnixMicro()-epoch.UnixMicro()))
}

func parseTime(b []byte) time.Time {
	return time.UnixMicro(int64(be.Uint64(b)) + epoch.UnixMicro())
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
