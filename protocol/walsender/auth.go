package walsender

import (
	"bytes"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/xdg-go/scram"

	"walproxy/protocol"
)

const (
	mechanism = "SCRAM-SHA-256"
	// maxSASLBytes bounds a message of the exchange. Source: PostgreSQL src/include/libpq/sasl.h, PG_MAX_SASL_MESSAGE_LENGTH.
	maxSASLBytes = 1024
)

// authenticate lets the user in or returns the FATAL error that says why not.
func (s *session) authenticate(user string) error {
	who := s.server.access.Load()
	if who.users == nil || who.trustLocal && s.unix {
		return nil
	}
	err := s.scram(who.users, user)
	var refusal *protocol.Error
	if errors.As(err, &refusal) { // not a connection that ends: psql asks for a password only when it knows that there is one
		s.server.refusals.log(s.log, user, refusal, time.Now())
	}
	return err
}

// scram runs the server's side of SCRAM-SHA-256. There is no TLS, hence no channel binding: a client that demands it fails.
//
// Source: PostgreSQL src/backend/libpq/auth-sasl.c, CheckSASLAuth; auth-scram.c (13-18).
func (s *session) scram(users *Users, user string) error {
	// The name inside the exchange is not looked at; PostgreSQL's clients leave it empty.
	server, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) { return users.credentials(user), nil })
	if err != nil {
		return err
	}
	conversation := server.NewConversation()
	if err := s.ask(&pgproto3.AuthenticationSASL{AuthMechanisms: []string{mechanism}}); err != nil {
		return err
	}
	body, err := s.saslMessage()
	if err != nil {
		return err
	}
	first, err := initialResponse(body)
	if err != nil {
		return err
	}
	challenge, err := conversation.Step(first)
	if err != nil {
		return errMalformedSCRAM()
	}
	if err := s.ask(&pgproto3.AuthenticationSASLContinue{Data: []byte(challenge)}); err != nil {
		return err
	}
	if body, err = s.saslMessage(); err != nil {
		return err
	}
	final, err := conversation.Step(string(body))
	_, known := users.verifiers[user]
	switch {
	case err != nil && final != scram.ErrInvalidProof:
		return errMalformedSCRAM()
	case err != nil || !conversation.Valid() || !known:
		return protocol.Fatalf(protocol.CodeInvalidPassword, "password authentication failed for user \"%s\"", user)
	}
	return s.wire.add(&pgproto3.AuthenticationSASLFinal{Data: []byte(final)})
}

func (s *session) ask(m encoder) error {
	return errors.Join(s.wire.add(m), s.wire.flush())
}

// saslMessage reads the body of a client's 'p' message.
func (s *session) saslMessage() ([]byte, error) {
	kind, body, err := s.wire.next()
	if err != nil {
		return nil, err
	}
	if kind != 'p' {
		return nil, protocol.Fatalf(protocol.CodeProtocolViolation, "expected SASL response, got message type %d", kind)
	}
	if len(body) > maxSASLBytes {
		return nil, errClosed
	}
	return body, nil
}

// initialResponse reads the first message: the mechanism that the client chose, and its data.
func initialResponse(body []byte) (string, error) {
	name, rest, found := bytes.Cut(body, []byte{0})
	if !found || len(rest) < 4 {
		return "", protocol.Fatalf(protocol.CodeProtocolViolation, "invalid message format")
	}
	if string(name) != mechanism {
		return "", protocol.Fatalf(protocol.CodeProtocolViolation, "client selected an invalid SASL authentication mechanism")
	}
	if data := rest[4:]; uint64(be.Uint32(rest)) == uint64(len(data)) {
		return string(data), nil
	}
	return "", protocol.Fatalf(protocol.CodeProtocolViolation, "invalid message format")
}

func errMalformedSCRAM() error {
	return protocol.Fatalf(protocol.CodeProtocolViolation, "malformed SCRAM message")
}
