package walsender_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"walproxy/integration/tlstest"
	"walproxy/protocol"
	"walproxy/protocol/walsender"
)

func rule(t *testing.T, r walsender.Rule) walsender.Rule {
	t.Helper()
	checked, err := walsender.NewRule(r)
	if err != nil {
		t.Fatal(err)
	}
	return checked
}

// withTLS returns an authority and what encrypts with a certificate of its.
func withTLS(t *testing.T, change func(*walsender.TLSOptions)) (*tlstest.CA, *walsender.TLS) {
	t.Helper()
	ca, err := tlstest.NewCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Server("server", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	options := walsender.TLSOptions{CertFile: pair.Cert, KeyFile: pair.Key}
	if change != nil {
		change(&options)
	}
	loaded, err := walsender.LoadTLS(options)
	if err != nil {
		t.Fatal(err)
	}
	return ca, loaded
}

// encrypt asks for TLS in the classic way and does the handshake.
func encrypt(t *testing.T, conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	if _, err := conn.Write(packet(80877103, nil)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != 'S' {
		t.Fatalf("%q, %v", answer, err)
	}
	encrypted := tls.Client(conn, config)
	return encrypted, encrypted.Handshake()
}

// TestPlaintextIsRefused: from another machine nothing works without TLS, unless that is allowed.
func TestPlaintextIsRefused(t *testing.T) {
	ca, loaded := withTLS(t, nil)
	users, err := walsender.NewUsers(map[string]string{"u": "secret"})
	if err != nil {
		t.Fatal(err)
	}
	for _, plaintext := range []bool{false, true} {
		access := passwords(users)
		access.TLS, access.Plaintext = loaded, plaintext
		h := serve(t, newNode("15.18", 0x1000000, nil), anywhere{newPipes()}, walsender.Options{Access: access})
		dial := func() net.Conn {
			conn, err := h.listener.(anywhere).Listener.(*pipes).dial()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		c := newClient(t, dial())
		c.startup(3<<16, "user", "u", "replication", "1")
		want := map[bool]string{false: "E(FATAL 28000) closed", true: "R([SCRAM-SHA-256])"}[plaintext]
		if got := c.until('R', 'Z'); got != want {
			t.Errorf("plaintext %v: %s, want %s", plaintext, got, want)
		}
		conn, err := encrypt(t, dial(), &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		c = newClient(t, conn)
		c.startup(3<<16, "user", "u", "replication", "1")
		if got := c.until('R', 'Z'); got != "R([SCRAM-SHA-256-PLUS SCRAM-SHA-256])" {
			t.Errorf("encrypted: %s", got)
		}
	}
}

func TestTLSVersionsAndCiphers(t *testing.T) {
	ca, only13 := withTLS(t, func(o *walsender.TLSOptions) { o.MinVersion = "TLSv1.3" })
	try := func(loaded *walsender.TLS, config *tls.Config) error {
		h := serveTCP(t, newNode("15.18", 0x1000000, nil), walsender.Options{Access: walsender.Access{TLS: loaded}})
		config.ServerName = "localhost"
		_, err := encrypt(t, h.dial(t), config)
		return err
	}
	if err := try(only13, &tls.Config{RootCAs: ca.Pool(), MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 below the minimum")
	}
	if err := try(only13, &tls.Config{RootCAs: ca.Pool()}); err != nil {
		t.Error(err)
	}
	const one = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	ca, only12 := withTLS(t, func(o *walsender.TLSOptions) { o.MaxVersion, o.Ciphers = "TLSv1.2", []string{one} })
	if err := try(only12, &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS13}); err == nil {
		t.Error("TLS 1.3 above the maximum")
	}
	if err := try(only12, &tls.Config{RootCAs: ca.Pool(), CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}); err == nil {
		t.Error("a cipher suite that is not in the list")
	}
	if err := try(only12, &tls.Config{RootCAs: ca.Pool()}); err != nil {
		t.Error(err)
	}
	for _, o := range []walsender.TLSOptions{
		{}, {MinVersion: "TLSv1"}, {MinVersion: "TLSv1.3", MaxVersion: "TLSv1.2"}, {Ciphers: []string{"RC4"}}, {CRLFile: ca.File}, {CAFile: "/nowhere"},
	} {
		if o.MinVersion+o.MaxVersion+o.CRLFile+o.CAFile != "" || o.Ciphers != nil {
			o.CertFile, o.KeyFile = filepath.Join(ca.Dir, "server.crt"), filepath.Join(ca.Dir, "server.key")
		}
		if _, err := walsender.LoadTLS(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// TestSlowHandshake: a handshake that does not go on ends with the time for authentication, one of junk at once.
func TestSlowHandshake(t *testing.T) {
	_, loaded := withTLS(t, nil)
	synctest.Test(t, func(t *testing.T) {
		h := serve(t, newNode("18.4", 0x1000000, nil), anywhere{newPipes()}, walsender.Options{
			Access: walsender.Access{TLS: loaded, Rules: walsender.PasswordRules(false)}, AuthenticationTimeout: 20 * time.Second})
		began := time.Now()
		for name, start := range map[string][]byte{"classic": packet(80877103, nil), "direct": {0x16, 3, 1}, "a byte": {0}} {
			conn, err := h.listener.(anywhere).Listener.(*pipes).dial()
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for _, b := range start { // one after the other
					_, _ = conn.Write([]byte{b})
				}
			}()
			if _, err := io.ReadAll(conn); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if waited := time.Since(began); waited != 20*time.Second {
				t.Errorf("%s: ended after %s", name, waited)
			}
			began = time.Now()
		}
		conn, err := h.listener.(anywhere).Listener.(*pipes).dial()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write(append([]byte{0x16, 3, 1, 0xff, 0xff}, make([]byte, 100)...)) }()
		if _, err := io.ReadAll(conn); err != nil || time.Since(began) != 0 {
			t.Errorf("junk: %v after %s", err, time.Since(began))
		}
		h.stop()
	})
}

// TestLimitsOfUsers: sessions of one user, and who may read WAL.
func TestLimitsOfUsers(t *testing.T) {
	h := serveTCP(t, newNode("16.1", 0x1000000, nil), walsender.Options{
		MaxConnectionsPerUser: 2, Access: walsender.Access{Replicators: []string{"a", "b"}}})
	try := func(user, want string) *client {
		t.Helper()
		c := newClient(t, h.dial(t))
		c.startup(3<<16, "user", user, "replication", "1")
		if got := c.until('Z'); got != want {
			t.Errorf("%s: %s, want %s", user, got, want)
		}
		return c
	}
	const ready = "R(0) K(4) Z(I)"
	try("a", ready)
	second := try("a", ready)
	try("a", "R(0) E(FATAL 53300) closed")
	try("b", ready)
	try("c", "R(0) E(FATAL 42501) closed")
	if err := second.conn.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() { // until the server has noticed
		c := newClient(t, h.dial(t))
		c.startup(3<<16, "user", "a", "replication", "1")
		if got := c.until('Z'); got == ready {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("after one has gone: %s", got)
		}
	}
}

// TestPeer: on a unix socket the kernel says who the client is.
func TestPeer(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := walsender.NewMapping(walsender.Mapping{Map: "m", System: me.Username, User: "standby"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	serve(t, newNode("15.18", 0x1000000, nil), l, walsender.Options{Access: walsender.Access{
		Mappings: []walsender.Mapping{mapping}, Rules: []walsender.Rule{
			rule(t, walsender.Rule{Type: "local", Users: []string{me.Username, "other"}, Method: "peer"}), rule(t, walsender.Rule{Type: "local", Method: "ident", Map: "m"}),
		}}})
	for name, want := range map[string]string{me.Username: "R(0) K(4) Z(I)", "other": "E(FATAL 28000) closed", "standby": "R(0) K(4) Z(I)", "nobody": "E(FATAL 28000) closed"} {
		conn, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c := newClient(t, conn)
		c.startup(3<<16, "user", name, "replication", "1")
		if got := c.until('Z'); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// unavailable cannot tell.
type unavailable struct{}

func (unavailable) Lookup(context.Context, string) (walsender.Role, bool, error) {
	return walsender.Role{}, false, fmt.Errorf("away")
}

// TestLookupFails: who cannot be looked up is sent to another host, not refused.
func TestLookupFails(t *testing.T) {
	h := servePipe(t, newNode("15.18", 0x1000000, nil), walsender.Options{Access: passwords(unavailable{})})
	c := newClient(t, h.dial(t))
	c.startup(3<<16, "user", "u", "replication", "1")
	if got := c.until('Z'); got != "E(FATAL 57P03) closed" {
		t.Error(got)
	}
}

// TestClientsThatDoNotRead: they stop nobody else, with TLS or without, and cost no more memory for it.
func TestClientsThatDoNotRead(t *testing.T) {
	const size = 48 << 20
	ca, loaded := withTLS(t, nil)
	n := newNode("15.18", begin, nil)
	h := serveTCP(t, n, walsender.Options{Access: walsender.Access{TLS: loaded}})
	start := func(conn net.Conn) *client {
		c := newClient(t, conn)
		c.startup(3<<16, "user", "u", "replication", "1")
		c.until('Z')
		c.query(fmt.Sprintf("START_REPLICATION %s", protocol.LSN(begin)))
		return c
	}
	for range 20 {
		start(h.dial(t))
		conn, err := encrypt(t, h.dial(t), &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		start(conn)
	}
	reader := start(h.dial(t))
	reader.until('W')
	n.grow(wal(begin, size))
	before := heap()
	for at := protocol.LSN(begin); at < begin+size; {
		message, err := reader.frontend.Receive()
		if err != nil {
			t.Fatal(err)
		}
		body := copyBody(t, message)
		if body[0] != 'w' {
			continue
		}
		x, err := protocol.ParseXLogData(body)
		if err != nil || x.Start != at || !bytes.Equal(x.Data, wal(at, len(x.Data))) {
			t.Fatalf("at %s: %v", at, err)
		}
		at += protocol.LSN(len(x.Data))
	}
	if after := heap(); after > before+24<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
	if !strings.HasPrefix(h.connect(t).run("SHOW wal_block_size"), "T(") {
		t.Error("a new session does not work")
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestIdleConnectionsAreCheap: a thousand sessions that do nothing, and as many connections that never began one.
func TestIdleConnectionsAreCheap(t *testing.T) {
	const count, each = 500, 64 << 10
	h := serveTCP(t, newNode("15.18", 0x1000000, nil), walsender.Options{MaxConnections: 2*count + 1})
	witness := h.connect(t)
	before := heap()
	for range count {
		h.connect(t)
		h.dial(t)
	}
	if grown := int64(heap()) - int64(before); grown > 2*count*each {
		t.Errorf("%d idle connections take %d bytes", 2*count, grown)
	}
	if got := witness.run("SHOW wal_block_size"); got != "T(wal_block_size:25) D(8192) C(SHOW) Z(I)" {
		t.Errorf("another session: %s", got)
	}
}
