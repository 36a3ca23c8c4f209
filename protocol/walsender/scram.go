package walsender

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"slices"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/xdg-go/scram"

	"walproxy/protocol"
)

const (
	mechanism     = "SCRAM-SHA-256"
	mechanismPlus = "SCRAM-SHA-256-PLUS"
	// maxSASLBytes bounds a message of the exchange. Source: PostgreSQL src/include/libpq/sasl.h, PG_MAX_SASL_MESSAGE_LENGTH.
	maxSASLBytes = 1024
)

// scram runs the server's side of SCRAM-SHA-256, bound to the TLS channel if the client chooses so. known says whether
// credentials are somebody's.
//
// Source: PostgreSQL src/backend/libpq/auth-sasl.c, CheckSASLAuth; auth-scram.c (13-18).
func (s *session) scram(ctx context.Context, credentials scram.StoredCredentials, known bool) error {
	// The name inside the exchange is not looked at; PostgreSQL's clients leave it empty.
	server, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) { return credentials, nil })
	if err != nil {
		return err
	}
	conversation := server.NewConversation()
	mechanisms := []string{mechanism}
	if s.endpoint != nil {
		conversation = server.NewConversationWithChannelBinding(scram.ChannelBinding{Type: scram.ChannelBindingTLSServerEndpoint, Data: s.endpoint})
		mechanisms = []string{mechanismPlus, mechanism}
	}
	if err := s.ask(&pgproto3.AuthenticationSASL{AuthMechanisms: mechanisms}); err != nil {
		return err
	}
	body, err := s.authMessage("SASL response")
	if err != nil {
		return err
	}
	chosen, first, err := initialResponse(body, mechanisms)
	if err != nil {
		return err
	}
	if err := checkBinding(first, chosen, s.endpoint != nil); err != nil {
		return err
	}
	challenge, err := conversation.Step(first)
	if err != nil {
		return errMalformedSCRAM("")
	}
	if err := s.ask(&pgproto3.AuthenticationSASLContinue{Data: []byte(challenge)}); err != nil {
		return err
	}
	if body, err = s.authMessage("SASL response"); err != nil {
		return err
	}
	if len(body) > maxSASLBytes {
		return errClosed
	}
	response := string(body)
	return s.slowly(ctx, func() error {
		final, err := conversation.Step(response)
		if refusal := scramRefusal(final, err, chosen); refusal != nil {
			return refusal
		}
		if !conversation.Valid() || !known {
			return errWrongPassword(s.user)
		}
		return s.wire.add(&pgproto3.AuthenticationSASLFinal{Data: []byte(final)})
	})
}

// initialResponse reads the first message: the mechanism that the client chose, and its data.
func initialResponse(body []byte, offered []string) (chosen, data string, err error) {
	name, rest, found := bytes.Cut(body, []byte{0})
	switch {
	case len(body) > maxSASLBytes:
		err = errClosed
	case !found:
		err = protocol.Fatalf(protocol.CodeProtocolViolation, "invalid string in message")
	case !slices.Contains(offered, string(name)):
		err = protocol.Fatalf(protocol.CodeProtocolViolation, "client selected an invalid SASL authentication mechanism")
	case len(rest) < 4 || uint64(be.Uint32(rest)) > uint64(len(rest)-4):
		err = protocol.Fatalf(protocol.CodeProtocolViolation, "insufficient data left in message")
	case uint64(be.Uint32(rest)) < uint64(len(rest)-4):
		err = protocol.Fatalf(protocol.CodeProtocolViolation, "invalid message format")
	default:
		return string(name), string(rest[4:]), nil
	}
	return "", "", err
}

// checkBinding compares what the client says about channel binding with the mechanism that it chose, and with what was
// offered: somebody in between may have taken the better one out.
//
// Source: PostgreSQL src/backend/libpq/auth-scram.c, read_client_first_message (13-18).
func checkBinding(first, chosen string, offered bool) error {
	if first == "" {
		return errMalformedSCRAM("The message is empty.")
	}
	flag, plus := first[0], chosen == mechanismPlus
	switch {
	case (flag == 'n' || flag == 'y') && plus:
		return errMalformedSCRAM("The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.")
	case flag == 'y' && offered:
		err := protocol.Fatalf(protocol.CodeInvalidAuthorization, "SCRAM channel binding negotiation error")
		err.Detail = "The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding."
		return err
	case flag == 'p' && !plus:
		return errMalformedSCRAM("The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.")
	}
	return nil
}

// scramRefusal says what is wrong with the client's last message, beside a wrong proof.
func scramRefusal(final string, err error, chosen string) error {
	switch {
	case err == nil || final == scram.ErrInvalidProof:
		return nil
	case final == scram.ErrChannelBindingsDontMatch && chosen == mechanismPlus:
		return protocol.Fatalf(protocol.CodeInvalidAuthorization, "SCRAM channel binding check failed")
	case final == scram.ErrChannelBindingsDontMatch:
		return protocol.Fatalf(protocol.CodeProtocolViolation, "unexpected SCRAM channel-binding attribute in client-final-message")
	}
	return errMalformedSCRAM("")
}

func errMalformedSCRAM(detail string) error {
	err := protocol.Fatalf(protocol.CodeProtocolViolation, "malformed SCRAM message")
	err.Detail = detail
	return err
}

// mock returns credentials for who has none: a salt that stays the same for a name, and keys that nobody knows. Whether a name
// exists does not show.
//
// Source: PostgreSQL src/backend/libpq/auth-scram.c, mock_scram_secret (13-18).
func (s *Server) mock(name string) scram.StoredCredentials {
	mac := hmac.New(sha256.New, s.mockKey)
	mac.Write([]byte(name))
	keys := make([]byte, 2*sha256.Size)
	rand.Read(keys)
	return scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(mac.Sum(nil)[:saltBytes]), Iters: defaultRounds},
		StoredKey:  keys[:sha256.Size], ServerKey: keys[sha256.Size:],
	}
}
