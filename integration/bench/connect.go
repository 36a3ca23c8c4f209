package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/tlstest"
)

// connections is how many connections are made one after the other for each figure.
const connections = 200

// connectHBA has the role of the benchmark prove a password; everybody else is trusted.
const connectHBA = "local all all trust\nhost replication bench 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"

// connect measures the time until a replication connection is ready for commands, straight to a server and through a node with
// the same certificate, user and password. The two take turns.
func (b *bench) connect(ctx context.Context) error {
	server, node, ca, err := b.connectPair(ctx)
	if server != nil {
		defer func() { _ = server.Close() }()
	}
	defer closeNode(node)
	if err != nil {
		return err
	}
	b.report.Line("### Connection setup\n")
	b.report.Line("From the first packet until the connection is ready for replication commands; median and 99th percentile of %d, one after the other.\n", connections)
	b.report.Line("| connection | server | node | median, ratio |")
	b.report.Line("|---|---|---|---|")
	for _, way := range []struct{ name, security string }{
		{"SCRAM-SHA-256", "sslmode=disable"},
		{"TLS 1.3, SCRAM-SHA-256-PLUS", "sslmode=verify-full channel_binding=require sslrootcert=" + ca.File},
	} {
		direct, through, err := b.connectTimes(ctx, server.Port, node.Options.Port, "user=bench password=secret replication=true "+way.security)
		if err != nil {
			return err
		}
		b.report.Line("| %s | %s | %s | %.2f |", way.name, percentiles(direct), percentiles(through), ratio(through, direct))
	}
	b.report.Line("")
	return nil
}

// connectPair starts a server and a node of it.
func (b *bench) connectPair(ctx context.Context) (server *pgcluster.Cluster, node *nodeproc.Node, ca *tlstest.CA, err error) {
	dir := filepath.Join(b.dir, "certificates")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, nil, err
	}
	if ca, err = tlstest.NewCA(dir, "ca"); err != nil {
		return nil, nil, nil, err
	}
	pair, err := ca.Server("server", "localhost", "127.0.0.1")
	if err != nil {
		return nil, nil, nil, err
	}
	install, err := pgcluster.FindAny()
	if err != nil {
		return nil, nil, nil, err
	}
	server, err = pgcluster.Create(ctx, pgcluster.Options{Major: install.Major, Conf: []string{
		"ssl = on", "ssl_cert_file = 'server.crt'", "ssl_key_file = 'server.key'", "password_encryption = 'scram-sha-256'", "log_replication_commands = off"}})
	if err != nil {
		return nil, nil, nil, err
	}
	for name, from := range map[string]string{"server.crt": pair.Cert, "server.key": pair.Key} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = server.WriteFile(name, content)
		}
		if err != nil {
			return server, nil, ca, err
		}
	}
	if err := server.WriteFile("pg_hba.conf", []byte(connectHBA)); err != nil {
		return server, nil, ca, err
	}
	if err := server.Start(ctx); err != nil {
		return server, nil, ca, err
	}
	if err := server.Exec(ctx, "CREATE ROLE bench REPLICATION LOGIN PASSWORD 'secret'"); err != nil {
		return server, nil, ca, err
	}
	verifier, err := server.Value(ctx, "SELECT rolpassword FROM pg_authid WHERE rolname = 'bench'")
	if err != nil {
		return server, nil, ca, err
	}
	node, err = b.node(ctx, server.Conninfo(), fmt.Sprintf("  tls: {cert_file: %s, key_file: %s}\n  auth: {method: scram-sha-256, users: [{name: bench, verifier: %q}]}\n", pair.Cert, pair.Key, verifier))
	return server, node, ca, err
}

// connectTimes makes connections to two ports in turn.
func (b *bench) connectTimes(ctx context.Context, direct, through int, security string) (times, throughTimes []time.Duration, err error) {
	for i := range connections + 10 {
		for _, port := range []int{direct, through} {
			began := time.Now()
			c, err := pgconn.Connect(ctx, fmt.Sprintf("host=localhost port=%d %s", port, security))
			if err != nil {
				return nil, nil, err
			}
			took := time.Since(began)
			if err := c.Close(ctx); err != nil {
				return nil, nil, err
			}
			switch {
			case i < 10: // the first ones warm up
			case port == direct:
				times = append(times, took)
			default:
				throughTimes = append(throughTimes, took)
			}
		}
	}
	slices.Sort(times)
	slices.Sort(throughTimes)
	return times, throughTimes, nil
}

// percentiles shows sorted times.
func percentiles(sorted []time.Duration) string {
	return fmt.Sprintf("%.1f, %.1f ms", milliseconds(sorted[len(sorted)/2]), milliseconds(sorted[len(sorted)*99/100]))
}

func ratio(a, b []time.Duration) float64 { return float64(a[len(a)/2]) / float64(b[len(b)/2]) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
