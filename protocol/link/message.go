package link

import (
	"fmt"

	"walproxy/protocol"
)

// StartupParameter is the protocol extension by which a downstream node asks for frames. A node that speaks frames answers
// with a ParameterStatus LinkParameter whose value is the link version; a stock server negotiates the extension away.
const (
	StartupParameter = "_pq_.walproxy_link"
	LinkParameter    = "walproxy_link"
	LinkVersion      = "1"
)

// Messages of a link travel as CopyData; the first byte tells them apart. Keepalives ('k'), standby status updates ('r') and
// hot standby feedback ('h') are PostgreSQL's own.
const (
	MessageHello  = 'L' // both ways, once: client first, then server
	MessageFrames = 'F' // server to client: frames, back to back; never an incomplete one
	MessageAck    = 'A' // client to server: frame bytes taken in
	MessageBackup = 'B' // server to client, in answer to BASE_BACKUP: a piece of a zstd stream
)

// ClientHello is what a downstream node says before frames flow: up to where it has the stream that its last frame belongs to.
type ClientHello struct {
	Stream        uint32 // identity of the stream of the last frame held, 0 if none or if the client cannot continue it
	ResetDistance uint32 // bytes the client is ready to hold per window: the largest it accepts
	WindowBytes   uint32 // the server keeps at most this many frame bytes unacknowledged
}

const clientHelloBytes = 1 + 2 + 4 + 4 + 4

// Append appends the encoded message to dst and returns the extended buffer.
func (h ClientHello) Append(dst []byte) []byte {
	dst = append(dst, MessageHello)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint32(dst, h.Stream)
	dst = le.AppendUint32(dst, h.ResetDistance)
	return le.AppendUint32(dst, h.WindowBytes)
}

// DecodeClientHello reads a whole message.
func DecodeClientHello(b []byte) (ClientHello, error) {
	if err := checkHello(b, clientHelloBytes); err != nil {
		return ClientHello{}, err
	}
	h := ClientHello{Stream: le.Uint32(b[3:]), ResetDistance: le.Uint32(b[7:]), WindowBytes: le.Uint32(b[11:])}
	if !ValidResetDistance(uint64(h.ResetDistance)) || h.WindowBytes == 0 {
		return ClientHello{}, fmt.Errorf("%w client hello: reset distance %d, window %d", ErrCorrupt, h.ResetDistance, h.WindowBytes)
	}
	return h, nil
}

// ServerHello is the upstream node's answer: whose WAL follows and in what windows.
type ServerHello struct {
	SystemID      protocol.SystemID
	Timeline      protocol.Timeline
	Start         protocol.LSN // where the first frame starts: the position asked for
	ResetDistance uint32       // bytes; no frame crosses a multiple of it
}

const serverHelloBytes = 1 + 2 + 8 + 4 + 8 + 4

// Append appends the encoded message to dst and returns the extended buffer.
func (h ServerHello) Append(dst []byte) []byte {
	dst = append(dst, MessageHello)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint64(dst, uint64(h.SystemID))
	dst = le.AppendUint32(dst, uint32(h.Timeline))
	dst = le.AppendUint64(dst, uint64(h.Start))
	return le.AppendUint32(dst, h.ResetDistance)
}

// DecodeServerHello reads a whole message.
func DecodeServerHello(b []byte) (ServerHello, error) {
	if err := checkHello(b, serverHelloBytes); err != nil {
		return ServerHello{}, err
	}
	h := ServerHello{
		SystemID: protocol.SystemID(le.Uint64(b[3:])), Timeline: protocol.Timeline(le.Uint32(b[11:])),
		Start: protocol.LSN(le.Uint64(b[15:])), ResetDistance: le.Uint32(b[23:]),
	}
	if h.Timeline == 0 || !ValidResetDistance(uint64(h.ResetDistance)) {
		return ServerHello{}, fmt.Errorf("%w server hello: timeline %d, reset distance %d", ErrCorrupt, h.Timeline, h.ResetDistance)
	}
	return h, nil
}

func checkHello(b []byte, want int) error {
	if len(b) < 3 || b[0] != MessageHello {
		return fmt.Errorf("%w link hello", ErrCorrupt)
	}
	if version := le.Uint16(b[1:]); version != Version {
		return &VersionError{What: "link version", Got: int(version)}
	}
	if len(b) != want {
		return fmt.Errorf("%w link hello: %d bytes, want %d", ErrCorrupt, len(b), want)
	}
	return nil
}

// AppendAck appends a MessageAck: consumed is the sum of the lengths of all MessageFrames bodies taken in since the hello.
func AppendAck(dst []byte, consumed uint64) []byte {
	return le.AppendUint64(append(dst, MessageAck), consumed)
}

// DecodeAck reads a whole MessageAck and returns the bytes consumed.
func DecodeAck(b []byte) (uint64, error) {
	if len(b) != 9 || b[0] != MessageAck {
		return 0, fmt.Errorf("%w link acknowledgement", ErrCorrupt)
	}
	return le.Uint64(b[1:]), nil
}
