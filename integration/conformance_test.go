package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/tlstest"
	"walproxy/integration/wire"
)

// door is a PostgreSQL server and a node of it with the same certificate, the same rules and the same users: whatever a client
// does, both must answer alike.
type door struct {
	server *pgcluster.Cluster
	node   *nodeproc.Node
	ca     *tlstest.CA
	client tlstest.Pair // of the user cert
	socket string       // unix socket of the node
}

// doorHBA and doorRules say the same. The user scram has a SCRAM verifier and md5 one of MD5, each asked for by each method.
const doorHBA = `
local all postgres trust
local replication all trust
host all postgres 127.0.0.1/32 trust
host replication postgres,trusted,norepl 127.0.0.1/32 trust
host replication rejected 127.0.0.1/32 reject
hostnossl replication password 127.0.0.1/32 password
host replication md5,md5scram,md5nobody 127.0.0.1/32 md5
host replication scram,scrammd5,scramnobody 127.0.0.1/32 scram-sha-256
hostssl replication cert 127.0.0.1/32 cert
hostssl replication certscram 127.0.0.1/32 scram-sha-256 clientcert=verify-ca
`

const doorRules = `
      - {type: local, method: trust}
      - {type: host, user: "postgres, trusted, norepl", address: 127.0.0.1, method: trust}
      - {type: host, user: rejected, address: 127.0.0.1/32, method: reject}
      - {type: hostnossl, database: replication, user: password, address: 127.0.0.1/32, method: password}
      - {type: host, user: /^md5, address: 127.0.0.0/8, method: md5}
      - {type: host, user: "scram, scrammd5, scramnobody", address: 127.0.0.1/32, method: scram-sha-256}
      - {type: hostssl, user: cert, method: cert}
      - {type: hostssl, user: certscram, method: scram-sha-256, clientcert: verify-ca}
`

const doorRoles = `
SET password_encryption = 'md5';
CREATE ROLE md5 REPLICATION LOGIN PASSWORD 'secret'; CREATE ROLE scrammd5 REPLICATION LOGIN PASSWORD 'secret';
SET password_encryption = 'scram-sha-256';
CREATE ROLE md5scram REPLICATION LOGIN PASSWORD 'secret'; CREATE ROLE scram REPLICATION LOGIN PASSWORD 'secret';
CREATE ROLE password REPLICATION LOGIN PASSWORD 'secret'; CREATE ROLE certscram REPLICATION LOGIN PASSWORD 'secret';
CREATE ROLE trusted REPLICATION LOGIN; CREATE ROLE norepl LOGIN; CREATE ROLE rejected REPLICATION LOGIN; CREATE ROLE cert REPLICATION LOGIN;
`

func openDoor(ctx context.Context, t *testing.T, major int) *door {
	t.Helper()
	d := &door{}
	var err error
	d.ca, err = tlstest.NewCA(t.TempDir(), "ca")
	must(t, err)
	pair, err := d.ca.Server("server", "127.0.0.1", "localhost")
	must(t, err)
	d.client, err = d.ca.Client("cert")
	must(t, err)
	d.server, err = pgcluster.Create(ctx, pgcluster.Options{Major: major, NoFsync: true, Templates: templates, Conf: []string{
		"ssl = on", "ssl_cert_file = 'server.crt'", "ssl_key_file = 'server.key'", "ssl_ca_file = 'ca.crt'", "wal_sender_timeout = 1min",
	}})
	must(t, err)
	own(t, "server", d.server)
	for name, from := range map[string]string{"server.crt": pair.Cert, "server.key": pair.Key, "ca.crt": d.ca.File} {
		content, err := os.ReadFile(from)
		must(t, err)
		must(t, d.server.WriteFile(name, content))
	}
	must(t, d.server.WriteFile("pg_hba.conf", []byte(doorHBA)))
	must(t, d.server.Start(ctx))
	must(t, d.server.Exec(ctx, doorRoles))
	d.socket = filepath.Join(t.TempDir(), "socket")
	d.node = startNode(ctx, t, nodeproc.Options{
		Config: fmt.Sprintf("upstream: {conninfo: %q}\nlisten:\n  max_connections: 1100\n  tls: {cert_file: %s, key_file: %s, ca_file: %s}\n"+
			"  auth:\n    max_failures: 0\n    query: {conninfo: %q}\n    rules:%s", d.server.Conninfo(), pair.Cert, pair.Key, d.ca.File, d.server.Conninfo()+" dbname=postgres hostaddr=127.0.0.1 load_balance_hosts=random", doorRules),
		Args: []string{"--listen", "unix:" + d.socket},
	})
	return d
}

// dial connects to the server or the node, over TCP or the unix socket.
func (d *door) dial(t *testing.T, through, unix bool) *wire.Conn {
	t.Helper()
	network, address := "tcp", fmt.Sprintf("127.0.0.1:%d", d.server.Port)
	switch {
	case through && unix:
		network, address = "unix", d.socket
	case through:
		address = fmt.Sprintf("127.0.0.1:%d", d.node.Options.Port)
	case unix:
		network, address = "unix", filepath.Join(d.server.SocketDir, fmt.Sprintf(".s.PGSQL.%d", d.server.Port))
	}
	c, err := wire.Dial(network, address)
	must(t, err)
	c.Texts = true
	t.Cleanup(func() { _ = c.Close() }) // it may be closed
	return c
}

// same has script do the same to the server and to the node and compares what they answered. It returns both connections.
func (d *door) same(t *testing.T, name string, script func(c *wire.Conn) error) (direct, through *wire.Conn) {
	t.Helper()
	return d.sameOver(t, name, false, script)
}

func (d *door) sameOver(t *testing.T, name string, unix bool, script func(c *wire.Conn) error) (direct, through *wire.Conn) {
	t.Helper()
	direct, through = d.dial(t, false, unix), d.dial(t, true, unix)
	if problem := compare(direct, through, script); problem != "" {
		t.Errorf("%s: %s", name, problem)
	}
	return direct, through
}

// compare has script do the same on two connections, and returns what differs in what was answered; "" is nothing.
func compare(direct, through *wire.Conn, script func(c *wire.Conn) error) string {
	for _, c := range []*wire.Conn{direct, through} {
		if err := script(c); err != nil {
			return fmt.Sprintf("%v after %s", err, strings.Join(c.Log, ", "))
		}
	}
	return wire.Diff(direct.Log, through.Log)
}

// begin sends a startup packet for physical replication and reads up to ReadyForQuery or the end.
func begin(c *wire.Conn, version uint32, parameters ...string) error {
	if err := c.Send(wire.Startup(version, parameters...)); err != nil {
		return err
	}
	_, err := c.Until("Z")
	return err
}

// as is begin for a user.
func as(c *wire.Conn, user string, parameters ...string) error {
	return begin(c, wire.Protocol30, append([]string{"user", user, "replication", "true"}, parameters...)...)
}
