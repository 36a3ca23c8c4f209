package walsender

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"walproxy/protocol"
)

// authenticate lets the user in or returns the FATAL error that says why not. It sets the session's role.
//
// Source: PostgreSQL src/backend/libpq/auth.c, ClientAuthentication (13-18).
func (s *session) authenticate(ctx context.Context) error {
	rule, number := s.access.match(s.caller())
	err := s.prove(ctx, rule)
	var refusal *protocol.Error
	if errors.As(err, &refusal) { // not a connection that ends: psql asks for a password only when it knows that there is one
		s.server.refusals.log(s.log, s.user, number, err, time.Now())
	}
	return err
}

func (s *session) caller() caller {
	return caller{unix: s.unix, encrypted: s.encrypted, address: s.address, user: s.user, database: s.database}
}

// prove has the client prove by the rule's method who it is. No rule refuses it.
func (s *session) prove(ctx context.Context, rule *Rule) error {
	switch {
	case rule == nil || !s.unix && !s.encrypted && !s.access.Plaintext && !s.local:
		return s.errRefused(false)
	case rule.ClientCert != "" && s.certificate == nil:
		return protocol.Fatalf(protocol.CodeInvalidAuthorization, "connection requires a valid client certificate")
	}
	if err := s.proveBy(ctx, rule); err != nil {
		return err
	}
	if rule.ClientCert == ClientCertVerifyFull && !s.access.mapped(rule.Map, s.certificate.Subject.CommonName, s.user) {
		return errFailed(rule.Method, s.user)
	}
	return nil
}

func (s *session) proveBy(ctx context.Context, rule *Rule) error {
	switch rule.Method {
	case MethodTrust, MethodCert:
		return s.findRole(ctx)
	case MethodReject:
		return s.errRefused(true)
	case MethodPeer, MethodIdent:
		name, err := s.systemUser(rule.Method)
		if err != nil {
			s.log.Warn("cannot tell the client's user of the operating system", zap.Error(err))
		}
		if err != nil || !s.access.mapped(rule.Map, name, s.user) {
			return errFailed(rule.Method, s.user)
		}
		return s.findRole(ctx)
	}
	role, known, err := s.lookup(ctx)
	if err != nil {
		return err
	}
	s.role = role
	switch {
	case rule.Method == MethodPassword:
		return s.password(ctx, role.Verifier, known)
	case rule.Method == MethodMD5 && known && role.Verifier.IsMD5():
		return s.md5(ctx, role.Verifier)
	case rule.Method == MethodMD5 && !known && s.major == 13: // whose password_encryption is md5 if nobody says otherwise
		return s.md5(ctx, mockMD5())
	case !known || role.Verifier.IsMD5():
		return s.scram(ctx, s.server.mock(s.user), false)
	}
	return s.scram(ctx, role.Verifier.credentials, true)
}

// findRole looks for more about a user that needs no password. One who is not known, or cannot be looked up at the moment, is
// whom the rule lets in all the same.
func (s *session) findRole(ctx context.Context) error {
	if role, _, err := s.lookup(ctx); err == nil {
		s.role = role
	}
	return nil
}

func (s *session) lookup(ctx context.Context) (Role, bool, error) {
	if s.access.Passwords == nil {
		return Role{}, false, nil
	}
	role, known, err := s.access.Passwords.Lookup(ctx, s.user)
	if err != nil {
		s.log.Error("cannot look up a user", zap.String("user", s.user), zap.Error(err))
		return Role{}, false, protocol.Fatalf(protocol.CodeCannotConnectNow, "the database system is not accepting connections")
	}
	return role, known, nil
}

// password asks for the password itself.
//
// Source: PostgreSQL src/backend/libpq/auth.c, CheckPasswordAuth; crypt.c, plain_crypt_verify (13-18).
func (s *session) password(ctx context.Context, v Verifier, known bool) error {
	if err := s.ask(&pgproto3.AuthenticationCleartextPassword{}); err != nil {
		return err
	}
	given, err := s.passwordMessage()
	if err != nil {
		return err
	}
	return s.slowly(ctx, func() error {
		if !v.IsMD5() {
			credentials := v.credentials
			if !known {
				credentials = s.server.mock(s.user) // it takes as long
			}
			derived, err := derive(given, credentials.KeyFactors)
			if err != nil || subtle.ConstantTimeCompare(derived.StoredKey, credentials.StoredKey) != 1 || !known {
				return errWrongPassword(s.user)
			}
			return nil
		}
		if digest := hexMD5(given + s.user); subtle.ConstantTimeCompare([]byte(digest), []byte(v.md5)) != 1 {
			return errWrongPassword(s.user)
		}
		return nil
	})
}

// md5 asks for the verifier, salted.
//
// Source: PostgreSQL src/backend/libpq/auth.c, CheckMD5Auth; crypt.c, md5_crypt_verify (13-18).
func (s *session) md5(ctx context.Context, v Verifier) error {
	var salt [4]byte
	rand.Read(salt[:])
	if err := s.ask(&pgproto3.AuthenticationMD5Password{Salt: salt}); err != nil {
		return err
	}
	given, err := s.passwordMessage()
	if err != nil {
		return err
	}
	want := md5Prefix + hexMD5(v.md5+string(salt[:]))
	return s.slowly(ctx, func() error {
		if subtle.ConstantTimeCompare([]byte(given), []byte(want)) != 1 {
			return errWrongPassword(s.user)
		}
		return nil
	})
}

// mockMD5 returns a verifier that nobody's password has.
func mockMD5() Verifier {
	digest := make([]byte, md5.Size)
	rand.Read(digest)
	return Verifier{md5: hex.EncodeToString(digest)}
}

func hexMD5(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// passwordMessage reads a password.
//
// Source: PostgreSQL src/backend/libpq/auth.c, recv_password_packet (13-18).
func (s *session) passwordMessage() (string, error) {
	body, err := s.authMessage("password response")
	switch {
	case err != nil:
		return "", err
	case len(body) == 0 || len(body) > maxSASLBytes || body[len(body)-1] != 0 || indexNUL(body) != len(body)-1:
		return "", protocol.Fatalf(protocol.CodeProtocolViolation, "invalid password packet size")
	case len(body) == 1:
		return "", protocol.Fatalf(protocol.CodeInvalidPassword, "empty password returned by client")
	}
	return string(body[:len(body)-1]), nil
}

func indexNUL(b []byte) int {
	for i, c := range b {
		if c == 0 {
			return i
		}
	}
	return -1
}

// slowly checks a proof; who has failed often waits for the answer.
func (s *session) slowly(ctx context.Context, check func() error) error {
	wait(ctx, s.server.throttle.take(s.address, s.access.MaxFailures, time.Now()))
	if err := check(); err != nil {
		return err
	}
	s.server.throttle.succeeded(s.address)
	return nil
}

func (s *session) ask(m encoder) error {
	return errors.Join(s.wire.add(m), s.wire.flush())
}

// authMessage reads the body of a client's 'p' message. what names it.
func (s *session) authMessage(what string) ([]byte, error) {
	kind, body, err := s.wire.next()
	if err != nil {
		return nil, err
	}
	if kind != 'p' {
		return nil, protocol.Fatalf(protocol.CodeProtocolViolation, "expected %s, got message type %d", what, kind)
	}
	return body, nil
}

// errRefused is the error of a client that has no rule, or one that rejects it.
//
// Source: PostgreSQL src/backend/libpq/auth.c, ClientAuthentication (13-18).
func (s *session) errRefused(rejected bool) error {
	host := "[local]"
	if s.address.IsValid() {
		host = s.address.String()
	}
	where := map[bool]string{true: "SSL encryption", false: "no encryption"}[s.encrypted]
	if s.major == 13 {
		where = map[bool]string{true: "SSL on", false: "SSL off"}[s.encrypted]
	}
	who := fmt.Sprintf("host \"%s\", user \"%s\"", host, s.user)
	asDatabase := s.database != "" && s.major > 13
	if asDatabase {
		who += fmt.Sprintf(", database \"%s\"", s.database)
	}
	var what string
	switch {
	case rejected && !asDatabase:
		what = "pg_hba.conf rejects replication connection for"
	case rejected:
		what = "pg_hba.conf rejects connection for"
	case !asDatabase:
		what = "no pg_hba.conf entry for replication connection from"
	default:
		what = "no pg_hba.conf entry for"
	}
	return protocol.Fatalf(protocol.CodeInvalidAuthorization, "%s %s, %s", what, who, where)
}

func errWrongPassword(user string) error {
	return protocol.Fatalf(protocol.CodeInvalidPassword, "password authentication failed for user \"%s\"", user)
}

// errFailed is the error of a proof that does not fit the user.
//
// Source: PostgreSQL src/backend/libpq/auth.c, auth_failed (13-18).
func errFailed(method Method, user string) error {
	names := map[Method]string{MethodTrust: `"trust"`, MethodCert: "certificate", MethodPeer: "Peer", MethodIdent: "Ident"}
	if name, ok := names[method]; ok {
		return protocol.Fatalf(protocol.CodeInvalidAuthorization, "%s authentication failed for user \"%s\"", name, user)
	}
	return errWrongPassword(user)
}
