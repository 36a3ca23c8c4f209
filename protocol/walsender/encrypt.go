package walsender

import (
	"errors"

	"walproxy/protocol"
)

// tlsRecordHandshake is the first byte of a connection that begins with TLS at once. As the first byte of a length it would be
// far beyond every limit.
const tlsRecordHandshake = 0x16

// answerEncryption answers a request for encryption by exactly one byte, and encrypts if that is yes. GSSAPI is never offered,
// TLS never on unix sockets.
//
// Source: PostgreSQL src/backend/tcop/backend_startup.c, ProcessStartupPacket (17-18); postmaster.c (13-16).
func (s *session) answerEncryption(code uint32) error {
	answer := byte('N')
	if code == codeSSL && s.access.TLS != nil && !s.unix {
		answer = 'S'
	}
	s.wire.out = append(s.wire.out, answer)
	if err := s.wire.flush(); err != nil || answer == 'N' {
		return err
	}
	return s.encrypt(false)
}

// encryptDirectly encrypts if the client has begun with TLS at once, which it may from 17 on and by ALPN only.
//
// Source: PostgreSQL src/backend/tcop/backend_startup.c, ProcessSSLStartup (17-18).
func (s *session) encryptDirectly() error {
	if s.access.TLS == nil || s.unix || s.major != 0 && s.major < sinceALPN {
		return nil
	}
	first, err := s.wire.in.Peek(1)
	if err != nil || first[0] != tlsRecordHandshake {
		return err
	}
	return s.encrypt(true)
}

// encrypt does the handshake and notes what it proves.
func (s *session) encrypt(direct bool) error {
	t := s.access.TLS
	state, err := s.wire.encrypt(t.forMajor(s.major), direct || s.major >= sinceALPN)
	s.encrypted = true
	switch {
	case errors.Is(err, errUnencrypted):
		refusal := protocol.Fatalf(protocol.CodeProtocolViolation, "received unencrypted data after SSL request")
		refusal.Detail = "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack."
		return refusal
	case err != nil:
		return closed(err)
	case direct && state.NegotiatedProtocol != alpn:
		return closed(errors.New("received direct SSL connection request without ALPN protocol negotiation extension"))
	}
	s.endpoint = t.endpoint
	if t.clients && len(state.PeerCertificates) > 0 {
		s.certificate = state.PeerCertificates[0]
	}
	return nil
}
