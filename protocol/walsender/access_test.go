package walsender_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

// passwords lets users in by SCRAM-SHA-256, with or without TLS.
func passwords(users walsender.Passwords) walsender.Access {
	return walsender.Access{Rules: walsender.PasswordRules(false), Passwords: users, Plaintext: true}
}

// login connects as a walreceiver does and returns the SQLSTATE of the refusal, "" for none.
func login(t *testing.T, port int, user, password string) string {
	t.Helper()
	c, err := pgconn.Connect(t.Context(), fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s sslmode=disable replication=true", port, user, password))
	var refused *pgconn.PgError
	switch {
	case err == nil:
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	case errors.As(err, &refused):
		return refused.Code
	default:
		t.Fatal(err)
	}
	return ""
}

// TestAccessChanges: who may log in changes while the server runs, and who was refused is in the log, without a secret.
func TestAccessChanges(t *testing.T) {
	users := func(secrets map[string]string) *walsender.Users {
		u, err := walsender.NewUsers(secrets)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	core, logs := observer.New(zap.WarnLevel)
	n := newNode("15.18", 0x1000000, nil)
	server, err := walsender.New(n, n, n, walsender.Options{Access: passwords(users(map[string]string{"a": "hunter2"}))}, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	try := func(user, password, want string) {
		t.Helper()
		if got := login(t, port, user, password); got != want {
			t.Errorf("%s with %s: %q, want %q", user, password, got, want)
		}
	}
	set := func(u *walsender.Users) {
		t.Helper()
		access := walsender.Access{} // trust
		if u != nil {
			access = passwords(u)
		}
		if err := server.SetAccess(access); err != nil {
			t.Fatal(err)
		}
	}
	try("a", "hunter2", "")
	try("a", "hunter3", protocol.CodeInvalidPassword)
	try("b", "hunter2", protocol.CodeInvalidPassword)
	set(users(map[string]string{"b": "hunter2"}))
	try("a", "hunter2", protocol.CodeInvalidPassword)
	try("b", "hunter2", "")
	set(nil) // on loopback
	try("a", "", "")
	set(users(nil))
	try("x", "hunter2", protocol.CodeInvalidPassword)
	refusals := logs.FilterMessage("login refused").All()
	if len(refusals) != 4 { // fewer than would be bounded
		t.Fatalf("%d refusals are logged", len(refusals))
	}
	for i, want := range []string{"a", "b", "a", "x"} {
		fields := refusals[i].ContextMap()
		if fields["user"] != want || !strings.HasPrefix(fields["peer"].(string), "127.0.0.1:") || strings.Contains(fmt.Sprint(fields), "hunter") {
			t.Errorf("refusal %d: %v", i, fields)
		}
	}
}

// anywhere is a listener whose address others can reach.
type anywhere struct{ net.Listener }

func (anywhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5433} }

// TestTrustIsNotForEverybody: trust does not come over an address that others can reach.
func TestTrustIsNotForEverybody(t *testing.T) {
	users, err := walsender.NewUsers(map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	pipes := newPipes()
	h := serve(t, newNode("15.18", 0x1000000, nil), anywhere{pipes}, walsender.Options{Access: passwords(users)})
	conn, err := pipes.dial() // it is accepted: the server listens
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.server.SetAccess(walsender.Access{}); !errors.Is(err, walsender.ErrNoAuthentication) {
		t.Errorf("got %v", err)
	}
	h.stop()
	if err := h.server.SetAccess(walsender.Access{}); err != nil {
		t.Errorf("with no listener: %v", err)
	}
}
