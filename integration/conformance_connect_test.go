package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/integration/wire"
	"walproxy/protocol"
)

// TestConformanceConnect holds the statements about connections, each by doing the same to a server and to a node.
func TestConformanceConnect(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		d := openDoor(ctx, t, major)
		for _, statement := range []struct {
			name string
			test func(*testing.T, *door)
		}{
			{"01_encryption_requests", encryptionRequests}, {"02_bad_startup_packets", badStartupPackets}, {"03_replication_values", replicationValues},
			{"04_protocol_3.2", newerProtocol}, {"05_protocol_extensions", protocolExtensions}, {"06_other_protocols", otherProtocols},
			{"07_methods", methods}, {"08_channel_binding", channelBinding}, {"09_no_replication", noReplication}, {"10_direct_TLS", directTLS},
			{"11_parameter_status", parameterStatus}, {"12_pg_receivewal", func(t *testing.T, d *door) { receivewalVersions(ctx, t, d) }},
			{"15_pids", uniquePIDs}, {"16_cancel", cancelRequests}, {"18_options", startupOptions}, {"client_certificates", clientCertificates}, {"conninfo", upstreamConninfo},
			{"04_05_08_10_libraries", libraries}, {"limits", limits},
		} {
			t.Run(statement.name, func(t *testing.T) { statement.test(t, d) })
		}
	})
}

func encryptionRequests(t *testing.T, d *door) {
	ssl, gss := wire.Packet(wire.SSLRequest, nil), wire.Packet(wire.GSSENCRequest, nil)
	ask := func(c *wire.Conn, requests ...[]byte) error {
		for _, r := range requests {
			if err := c.Send(r); err != nil {
				return err
			}
			if answer, err := c.Byte(); err != nil || answer == 'S' {
				return err
			}
		}
		return nil
	}
	for name, requests := range map[string][][]byte{"GSS": {gss}, "SSL": {ssl}, "GSS, SSL": {gss, ssl}, "SSL, GSS": {ssl, gss}} {
		d.sameOver(t, name+" over a unix socket", true, func(c *wire.Conn) error {
			if err := ask(c, requests...); err != nil {
				return err
			}
			return as(c, "trusted")
		})
		if d.server.Major == 13 {
			continue // which says what it has to say in the form of protocol 2, until it has seen a startup packet
		}
		d.sameOver(t, name+" and again", true, func(c *wire.Conn) error {
			if err := ask(c, requests...); err != nil {
				return err
			}
			if err := c.Send(requests[0]); err != nil {
				return err
			}
			_, err := c.Until("Z")
			return err
		})
	}
	begins := func(inside []byte, requests ...[]byte) func(c *wire.Conn) error {
		return func(c *wire.Conn) error {
			if err := ask(c, requests...); err != nil {
				return err
			}
			if err := c.Encrypt(&tls.Config{RootCAs: d.ca.Pool(), ServerName: "localhost"}); err != nil {
				return err
			}
			if err := c.Send(inside); err != nil {
				return err
			}
			_, err := c.Until("Z")
			return err
		}
	}
	start := wire.Startup(wire.Protocol30, "user", "trusted", "replication", "true")
	d.same(t, "SSL, then GSS inside", begins(gss, ssl))
	d.same(t, "SSL, then SSL inside", begins(ssl, ssl))
	direct, _ := d.same(t, "SSL", begins(start, ssl))
	// A server that was built with GSSAPI says yes to it, and nothing else then.
	c := d.dial(t, true, false)
	must(t, begins(start, gss, ssl)(c))
	if diff := wire.Diff(append([]string{"byte N"}, direct.Log...), c.Log); diff != "" {
		t.Errorf("GSS, SSL: %s", diff)
	}
	if d.server.Major == 13 {
		return
	}
	d.same(t, "bytes before the handshake", func(c *wire.Conn) error {
		if err := ask(c, append(bytes.Clone(ssl), "early"...)); err != nil {
			return err
		}
		if err := c.Encrypt(&tls.Config{RootCAs: d.ca.Pool(), ServerName: "localhost"}); err != nil {
			return err
		}
		_, err := c.Until("Z")
		return err
	})
}

func badStartupPackets(t *testing.T, d *door) {
	for name, packet := range map[string][]byte{
		"one byte too long": wire.Packet(wire.Protocol30, make([]byte, 10001-4)), "short": {0, 0, 0, 7, 0, 3, 0}, "no length": {0, 0, 0, 0},
		"negative": {0xff, 0xff, 0xff, 0xff}, "unterminated": wire.Packet(wire.Protocol30, []byte("user\x00u\x00")),
		"bytes behind": wire.Packet(wire.Protocol30, []byte("user\x00u\x00\x00\x00")), "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"),
		"no user": wire.Startup(wire.Protocol30, "replication", "true"), "cancel, short": wire.Packet(wire.CancelRequest, []byte{0, 0, 0, 1}),
	} {
		d.same(t, name, func(c *wire.Conn) error {
			if err := c.Send(packet); err != nil {
				return err
			}
			_, err := c.Until("Z")
			return err
		})
	}
	d.same(t, "as long as possible", func(c *wire.Conn) error {
		fill := "some.thing"
		used := len(wire.Startup(wire.Protocol30, "user", "trusted", "replication", "true", fill, "")) - 4
		return begin(c, wire.Protocol30, "user", "trusted", "replication", "true", fill, strings.Repeat("x", 10000-used))
	})
}

func replicationValues(t *testing.T, d *door) {
	for _, value := range []string{"true", "on", "1", "yes", "t", "TRUE", "maybe", "o", ""} {
		d.same(t, value, func(c *wire.Conn) error {
			c.Values = true
			return begin(c, wire.Protocol30, "user", "trusted", "replication", value)
		})
	}
	d.same(t, "database", func(c *wire.Conn) error {
		if err := begin(c, wire.Protocol30, "user", "postgres", "replication", "database", "database", "postgres"); err != nil {
			return err
		}
		return c.Command("IDENTIFY_SYSTEM")
	})
	through := d.dial(t, true, false)
	must(t, begin(through, wire.Protocol30, "user", "postgres", "replication", "false"))
	if got := strings.Join(through.Log, ", "); !strings.HasPrefix(got, "E FATAL 0A000 ") {
		t.Errorf("an SQL connection: %s", got)
	}
}

func newerProtocol(t *testing.T, d *door) {
	for _, version := range []uint32{3<<16 | 1, wire.Protocol32, 3<<16 | 3, 3<<16 | 9999} {
		d.same(t, fmt.Sprintf("%x", version), func(c *wire.Conn) error {
			return begin(c, version, "user", "trusted", "replication", "true")
		})
	}
}

func protocolExtensions(t *testing.T, d *door) {
	for _, names := range [][]string{{"_pq_.x"}, {"_pq_.x", "_pq_.y"}, {"_pq_."}, {"_PQ_.x"}} {
		for _, version := range []uint32{wire.Protocol30, wire.Protocol32} {
			d.same(t, fmt.Sprint(names), func(c *wire.Conn) error {
				parameters := []string{"user", "trusted", "replication", "true"}
				for _, name := range names {
					parameters = append(parameters, name, "1")
				}
				return begin(c, version, parameters...)
			})
		}
	}
}

func otherProtocols(t *testing.T, d *door) {
	for _, version := range []uint32{4 << 16, 4<<16 | 2, 1234<<16 | 1} {
		d.same(t, fmt.Sprintf("%x", version), func(c *wire.Conn) error {
			return begin(c, version, "user", "trusted", "replication", "true")
		})
	}
	if d.server.Major >= 14 { // 13 still speaks 2.0
		d.same(t, "2.0", func(c *wire.Conn) error {
			if err := c.Send(wire.Packet(2<<16, make([]byte, 288))); err != nil {
				return err
			}
			text := make([]byte, 200)
			n, _ := c.NetConn().Read(text) // it ends in a NUL and has no length
			c.Log = append(c.Log, strings.TrimSpace(string(text[:n])))
			return nil
		})
	}
}

// prove answers the server's question for a password by what it asks for.
func prove(c *wire.Conn, user, password string) error {
	m, err := c.Until("RE")
	if err != nil || m.Type != 'R' {
		return err
	}
	return c.Answer(m, user, password, wire.Binding{Mechanism: wire.SCRAM, Flag: "n"})
}

func methods(t *testing.T, d *door) {
	for _, user := range []string{"trusted", "rejected", "password", "md5", "md5scram", "md5nobody", "scram", "scrammd5", "scramnobody", "cert", "elsewhere"} {
		for _, password := range []string{"secret", "wrong", ""} {
			d.same(t, user+" with "+password, func(c *wire.Conn) error {
				if err := c.Send(wire.Startup(wire.Protocol30, "user", user, "replication", "true")); err != nil {
					return err
				}
				return prove(c, user, password)
			})
		}
	}
	d.same(t, "with a database", func(c *wire.Conn) error {
		return begin(c, wire.Protocol30, "user", "elsewhere", "replication", "database", "database", "postgres")
	})
	for name, answer := range map[string][]byte{"a query": wire.Query("SELECT 1"), "no mechanism": wire.Typed('p', []byte("x")), "another mechanism": wire.Typed('p', []byte("X\x00\x00\x00\x00\x00")),
		"no length": wire.Typed('p', []byte("SCRAM-SHA-256\x00")), "too short": wire.Typed('p', []byte("SCRAM-SHA-256\x00\x00\x00\x00\x05n,,")),
		"too long": wire.Typed('p', []byte("SCRAM-SHA-256\x00\x00\x00\x00\x02n,,")), "nothing": wire.Typed('p', []byte("SCRAM-SHA-256\x00\x00\x00\x00\x00")),
		"nonsense": wire.Typed('p', []byte("SCRAM-SHA-256\x00\x00\x00\x00\x03n,,"))} {
		d.same(t, "SCRAM and "+name, func(c *wire.Conn) error {
			if err := c.Send(wire.Startup(wire.Protocol30, "user", "scram", "replication", "true")); err != nil {
				return err
			}
			c.Texts = name != "nonsense" // whose details say how far the server's parser came
			if _, err := c.Next(); err != nil {
				return err
			}
			if err := c.Send(answer); err != nil {
				return err
			}
			_, err := c.Until("Z")
			return err
		})
	}
}

// encrypted begins TLS in the classic way.
func (d *door) encrypted(c *wire.Conn, config *tls.Config) error {
	if err := c.Send(wire.Packet(wire.SSLRequest, nil)); err != nil {
		return err
	}
	if _, err := c.Byte(); err != nil {
		return err
	}
	config.RootCAs, config.ServerName = d.ca.Pool(), "localhost"
	return c.Encrypt(config)
}

func channelBinding(t *testing.T, d *door) {
	for name, b := range map[string]wire.Binding{
		"bound": {Mechanism: wire.SCRAMPlus, Flag: "p"}, "not bound": {Mechanism: wire.SCRAM, Flag: "n"}, "downgraded": {Mechanism: wire.SCRAM, Flag: "y"},
		"bound to something else": {Mechanism: wire.SCRAMPlus, Flag: "p", Wrong: true}, "PLUS without": {Mechanism: wire.SCRAMPlus, Flag: "n"},
		"PLUS and y": {Mechanism: wire.SCRAMPlus, Flag: "y"}, "binding without PLUS": {Mechanism: wire.SCRAM, Flag: "p"},
	} {
		for _, password := range []string{"secret", "wrong"} {
			d.same(t, name+" with "+password, func(c *wire.Conn) error {
				if err := d.encrypted(c, &tls.Config{}); err != nil {
					return err
				}
				if err := c.Send(wire.Startup(wire.Protocol30, "user", "scram", "replication", "true")); err != nil {
					return err
				}
				m, err := c.Next()
				if err != nil {
					return err
				}
				return c.Answer(m, "scram", password, b)
			})
		}
	}
	for _, flag := range []string{"n", "y"} {
		d.same(t, "in the clear, flag "+flag, func(c *wire.Conn) error {
			if err := c.Send(wire.Startup(wire.Protocol30, "user", "scram", "replication", "true")); err != nil {
				return err
			}
			m, err := c.Next()
			if err != nil {
				return err
			}
			return c.Answer(m, "scram", "secret", wire.Binding{Mechanism: wire.SCRAM, Flag: flag})
		})
	}
}

func noReplication(t *testing.T, d *door) {
	d.same(t, "norepl", func(c *wire.Conn) error { return as(c, "norepl") })
	d.same(t, "norepl with a setting that is unknown", func(c *wire.Conn) error { return as(c, "norepl", "nonsense", "1") })
}

func directTLS(t *testing.T, d *door) {
	for name, protocols := range map[string][]string{"postgresql": {"postgresql"}, "none": nil, "another": {"http/2"}, "both": {"http/2", "postgresql"}} {
		d.same(t, "direct, ALPN "+name, func(c *wire.Conn) error {
			if err := c.Encrypt(&tls.Config{RootCAs: d.ca.Pool(), ServerName: "localhost", NextProtos: protocols}); err != nil || c.Log[0] == "no TLS" {
				return err
			}
			_ = c.Send(wire.Startup(wire.Protocol30, "user", "trusted", "replication", "true")) // the server may hang up first
			_, err := c.Until("Z")
			return err
		})
		d.same(t, "classic, ALPN "+name, func(c *wire.Conn) error {
			if err := d.encrypted(c, &tls.Config{NextProtos: protocols}); err != nil || c.Log[1] == "no TLS" {
				return err
			}
			return as(c, "trusted")
		})
	}
}

func parameterStatus(t *testing.T, d *door) {
	direct, through := d.same(t, "parameters", func(c *wire.Conn) error {
		return as(c, "trusted", "application_name", "tëst", "options", "-c DateStyle=sql,dmy")
	})
	if !maps.Equal(direct.Status, through.Status) || len(direct.Status) < 11 {
		t.Errorf("the server reports %v, the node %v", direct.Status, through.Status)
	}
}

// receivewalVersions runs pg_receivewal on both: it refuses servers newer than itself.
func receivewalVersions(ctx context.Context, t *testing.T, d *door) {
	tool, _, err := pgcluster.FindTool("pg_receivewal")
	must(t, err)
	lsn, err := d.server.FlushLSN(ctx)
	must(t, err)
	run := func(port int) string {
		cmd := exec.CommandContext(ctx, tool, "--directory", t.TempDir(), "--no-loop", "--no-password", "--endpos", (lsn - 8).String(),
			"--dbname", fmt.Sprintf("host=127.0.0.1 port=%d user=scram password=secret sslmode=verify-full sslrootcert=%s channel_binding=require", port, d.ca.File))
		out, err := cmd.CombinedOutput()
		return fmt.Sprintf("%v: %s", err, strings.ReplaceAll(string(out), fmt.Sprint(port), "PORT"))
	}
	direct, through := run(d.server.Port), run(d.node.Options.Port)
	if direct != through {
		t.Errorf("pg_receivewal on the server: %s\non the node: %s", direct, through)
	}
}

// uniquePIDs holds a thousand sessions at a time.
func uniquePIDs(t *testing.T, d *door) {
	seen := map[uint32]bool{}
	for range 1000 {
		c := d.dial(t, true, false)
		must(t, as(c, "trusted"))
		if c.PID == 0 || c.PID > 1<<31-1 || seen[c.PID] {
			t.Fatalf("pid %d", c.PID)
		}
		seen[c.PID] = true
		defer c.Close()
	}
	d.same(t, "temporary slots named by pid", func(c *wire.Conn) error {
		if err := as(c, "trusted"); err != nil {
			return err
		}
		return c.Command(fmt.Sprintf("CREATE_REPLICATION_SLOT pg_walreceiver_%d TEMPORARY PHYSICAL RESERVE_WAL", c.PID))
	})
}

// begin returns the first position of the segment that is written: the node may be a little behind.
func (d *door) begin(t *testing.T) protocol.LSN {
	t.Helper()
	lsn, err := d.server.FlushLSN(t.Context())
	must(t, err)
	return lsn.Floor(d.server.Options.SegmentBytes())
}

func cancelRequests(t *testing.T, d *door) {
	lsn := d.begin(t)
	for _, version := range []uint32{wire.Protocol30, wire.Protocol32} {
		for _, right := range []bool{true, false} {
			d.same(t, fmt.Sprintf("protocol %x, right %v", version, right), func(c *wire.Conn) error {
				if version == wire.Protocol32 { // one of the two with TLS
					if err := d.encrypted(c, &tls.Config{}); err != nil {
						return err
					}
				}
				if err := begin(c, version, "user", "trusted", "replication", "true"); err != nil {
					return err
				}
				if err := c.Send(wire.Query(fmt.Sprintf("START_REPLICATION %s TIMELINE 1", lsn))); err != nil {
					return err
				}
				if _, err := c.Until("WE"); err != nil {
					return err
				}
				if err := cancel(c, right); err != nil {
					return err
				}
				if !right { // it streams on: CopyDone ends it as always
					if err := c.Send(wire.Typed('c', nil)); err != nil {
						return err
					}
				}
				if err := c.UntilQuietly("Z"); err != nil { // without the WAL that comes or not
					return err
				}
				return c.Command("SHOW wal_block_size")
			})
		}
	}
}

// cancel sends a cancel request over a connection of its own and waits for its end.
func cancel(c *wire.Conn, right bool) error {
	remote := c.NetConn().RemoteAddr()
	other, err := wire.Dial(remote.Network(), remote.String())
	if err != nil {
		return err
	}
	defer other.Close()
	key := bytes.Clone(c.Key)
	if !right {
		key[0] ^= 1
	}
	body := append([]byte{byte(c.PID >> 24), byte(c.PID >> 16), byte(c.PID >> 8), byte(c.PID)}, key...)
	if err := other.Send(wire.Packet(wire.CancelRequest, body)); err != nil {
		return err
	}
	if _, err := other.Until("Z"); err != nil {
		return err
	}
	c.Log = append(c.Log, "cancel: "+strings.Join(other.Log, ", "))
	return nil
}

func startupOptions(t *testing.T, d *door) {
	show := func(parameters ...string) func(c *wire.Conn) error {
		return func(c *wire.Conn) error {
			c.Values = true
			if err := as(c, "trusted", parameters...); err != nil || strings.HasPrefix(c.Log[len(c.Log)-1], "closed") {
				return err
			}
			return c.Command("SHOW wal_sender_timeout")
		}
	}
	d.same(t, "wal_sender_timeout", show("options", "-c wal_sender_timeout=2s"))
	d.same(t, "as a parameter", show("wal_sender_timeout", "90000"))
	d.same(t, "two words", show("options", `--wal-sender-timeout=2min -cdatestyle=iso -c application_name=a\ b`))
	for _, options := range []string{"-c nonsense=1", "-c x", "-c wal_sender_timeout=soon", "-c server_version=1"} {
		d.same(t, options, show("options", options))
	}
	lsn := d.begin(t)
	d.same(t, "silence", func(c *wire.Conn) error {
		if err := as(c, "trusted", "options", "-c wal_sender_timeout=400ms"); err != nil {
			return err
		}
		began := time.Now()
		if err := c.Send(wire.Query("START_REPLICATION " + lsn.String() + " TIMELINE 1")); err != nil {
			return err
		}
		if err := c.UntilQuietly("k"); err != nil { // asks for a reply at half of it
			return err
		}
		asked := time.Since(began)
		if err := c.UntilQuietly("\x00"); err != nil { // and hangs up
			return err
		}
		if ended := time.Since(began); asked < 200*time.Millisecond || ended < 400*time.Millisecond || ended > 5*time.Second {
			return fmt.Errorf("asked after %s, ended after %s", asked, ended)
		}
		return nil
	})
}

func clientCertificates(t *testing.T, d *door) {
	other, err := d.ca.Client("somebody")
	must(t, err)
	load := func(p string) tls.Certificate {
		c, err := tls.LoadX509KeyPair(p+".crt", p+".key")
		must(t, err)
		return c
	}
	mine, theirs := load(filepath.Join(d.ca.Dir, "cert")), load(strings.TrimSuffix(other.Cert, ".crt"))
	for name, certificates := range map[string][]tls.Certificate{"none": nil, "mine": {mine}, "another's": {theirs}} {
		for _, user := range []string{"cert", "certscram", "trusted"} {
			d.same(t, user+" with "+name, func(c *wire.Conn) error {
				if err := d.encrypted(c, &tls.Config{Certificates: certificates}); err != nil {
					return err
				}
				if err := c.Send(wire.Startup(wire.Protocol30, "user", user, "replication", "true")); err != nil {
					return err
				}
				return prove(c, user, "secret")
			})
		}
	}
}
