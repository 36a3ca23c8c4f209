package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/tlstest"
	"walproxy/integration/wire"
)

// TestMutualTLSBetweenNodes: from the server to the last consumer everything is encrypted and both ends of each connection are
// proved: by SCRAM bound to the channel, by certificates between the nodes. Certificates are replaced and revoked while WAL flows.
func TestMutualTLSBetweenNodes(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	d := openDoor(ctx, t, 15)
	must(t, d.server.Exec(ctx, "CREATE TABLE t (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), text text)"))
	pair, err := d.ca.Server("a", "localhost")
	must(t, err)
	clientB, err := d.ca.Client("b.example")
	must(t, err)
	list, err := d.ca.Revoke("list.crl", time.Now().Add(time.Hour))
	must(t, err)
	a := startNode(ctx, t, nodeproc.Options{Config: fmt.Sprintf(`
upstream: {conninfo: "host=localhost hostaddr=127.0.0.1 port=%d user=scram password=secret sslmode=verify-full sslrootcert=%s channel_binding=require ssl_min_protocol_version=TLSv1.3"}
listen:
  tls: {cert_file: %s, key_file: %s, ca_file: %s, crl_file: %s, min_version: TLSv1.3}
  auth:
    rules: [{type: hostssl, user: node_b, method: cert, map: nodes}]
    maps: [{map: nodes, system: '/^(.*)\.example$', user: 'node_\1'}]
`, d.server.Port, d.ca.File, pair.Cert, pair.Key, d.ca.File, list)})
	toA := fmt.Sprintf("host=localhost port=%d user=node_b sslmode=verify-full sslrootcert=%s", a.Options.Port, d.ca.File)
	b := startNode(ctx, t, nodeproc.Options{Config: fmt.Sprintf(`
upstream: {conninfo: "%s sslcert=%s sslkey=%s"}
listen:
  tls: {cert_file: %s, key_file: %s}
  auth: {method: scram-sha-256, users_file: %s}
`, toA, clientB.Cert, clientB.Key, pair.Cert, pair.Key, usersFile(t, "reader:secret\n"))})
	r := receive(t, fmt.Sprintf("host=localhost port=%d user=reader password=secret sslmode=verify-full sslrootcert=%s channel_binding=require", b.Options.Port, d.ca.File))
	from := write(ctx, t, d.server, 100)

	withCertificate := fmt.Sprintf("%s replication=true sslcert=%s sslkey=%s", toA, clientB.Cert, clientB.Key)
	if out := psql(ctx, t, withCertificate, "SHOW wal_block_size"); out != "8192" {
		t.Errorf("psql with a certificate: %s", out)
	}
	if out := psql(ctx, t, toA+" replication=true", "SHOW wal_block_size"); !strings.Contains(out, "connection requires a valid client certificate") {
		t.Errorf("psql without a certificate: %s", out)
	}
	first := serial(t, d.ca, a.Options.Port, clientB)
	renewed, err := d.ca.Server("renewed", "localhost")
	must(t, err)
	_, err = d.ca.Revoke("list.crl", time.Now().Add(time.Hour), clientB)
	must(t, err)
	must(t, os.Rename(renewed.Cert, pair.Cert))
	must(t, os.Rename(renewed.Key, pair.Key))
	must(t, a.Process().Signal(syscall.SIGHUP))
	must(t, pgcluster.Until(ctx, func() (bool, error) { return strings.Contains(a.Log(), "configuration reloaded"), nil }))
	good, err := d.ca.Client("c.example")
	must(t, err)
	if again := serial(t, d.ca, a.Options.Port, good); again == first || again == "" {
		t.Errorf("the certificate's number was %s, is %s", first, again)
	}
	if got := serial(t, d.ca, a.Options.Port, clientB); got != "" {
		t.Error("a certificate that was revoked is accepted")
	}

	to := write(ctx, t, d.server, 1000)
	source := pgcluster.Source{Dir: r.Dir, SegmentBytes: d.server.Options.SegmentBytes()}
	must(t, pgcluster.AwaitWAL(ctx, d.server.WAL(), source, 1, from, to))
	metrics, err := b.Metrics()
	must(t, err)
	if n := metrics["walproxy_receiver_connects_total"]; n != 1 {
		t.Errorf("node B connected %v times", n)
	}
}

// usersFile writes a file of users.
func usersFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users")
	must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// serial connects with a client's certificate and returns the number of the server's; "" if the server does not accept ours.
func serial(t *testing.T, ca *tlstest.CA, port int, client tlstest.Pair) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	must(t, err)
	socket, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	defer socket.Close()
	must(t, socket.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = socket.Write(wire.Packet(wire.SSLRequest, nil))
	must(t, err)
	_, err = io.ReadFull(socket, make([]byte, 1))
	must(t, err)
	c := tls.Client(socket, &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost", Certificates: []tls.Certificate{pair}})
	must(t, c.Handshake())
	number := c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	_, err = c.Write(wire.Packet(4<<16, nil)) // a protocol that is refused, once the certificate was looked at
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil {
		return ""
	}
	return number
}

// TestRenegotiationIsRefused has OpenSSL ask for a new handshake within TLS 1.2: the node ends that session and goes on.
func TestRenegotiationIsRefused(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	d := openDoor(ctx, t, 15)
	cmd := exec.CommandContext(ctx, "openssl", "s_client", "-starttls", "postgres", "-tls1_2", "-CAfile", d.ca.File, "-connect", fmt.Sprintf("127.0.0.1:%d", d.node.Options.Port))
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = cmd.Stdout
	must(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var seen []string
	for lines.Scan() {
		seen = append(seen, lines.Text())
		if strings.Contains(lines.Text(), "Extended master secret") { // the end of what it says about the handshake
			_, err = io.WriteString(in, "R\n")
			must(t, err)
		}
	}
	must(t, in.Close())
	if err, text := cmd.Wait(), strings.Join(seen, "\n"); err == nil || !strings.Contains(text, "RENEGOTIATING") || strings.Contains(text, "read R BLOCK") {
		t.Errorf("%v: %s", err, text)
	}
	must(t, as(d.dial(t, true, false), "trusted"))
}
