package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestPatroni has Debian's Patroni make a standby cluster out of nothing but a node's address: it takes the base backup, follows,
// and is promoted when it is told that it is a standby cluster no more.
func TestPatroni(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, NoFsync: true, Conf: fastRetry})
	write(ctx, t, primary, 500)
	node := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	if out, err := tool(t, node, "slots", "create", "far"); err != nil { // Patroni leaves that to whoever owns the upstream
		t.Fatalf("%v\n%s", err, out)
	}
	p := startPatroni(ctx, t, primary.Install.Bin, node.Options.Port)

	p.awaitRole(ctx, t, "standby-leader")
	write(ctx, t, primary, 500)
	want, err := primary.Value(ctx, "SELECT count(*) FROM t")
	must(t, err)
	awaitRows := func() {
		t.Helper()
		must(t, pgcluster.Until(ctx, func() (bool, error) {
			got, err := p.value(ctx, "SELECT count(*) FROM t")
			return err == nil && got == want, nil
		}))
	}
	awaitRows()

	p.configure(ctx, t, `{"standby_cluster": null}`)
	p.awaitRole(ctx, t, "primary")
	must(t, pgcluster.Until(ctx, func() (bool, error) { // it calls itself the primary a moment before it is one
		file, err := p.value(ctx, "SELECT pg_walfile_name(pg_current_wal_lsn())")
		return err == nil && strings.HasPrefix(file, "00000002"), nil
	}))
	awaitRows()
}

// patroni is a running Patroni with one server.
type patroni struct {
	home     string
	rest     string // URL of its REST API
	postgres int    // port
}

// startPatroni starts Patroni, with its own store (Raft, one member), for a standby cluster whose leader follows a port of this
// machine. It ends with the test.
func startPatroni(ctx context.Context, t *testing.T, bin string, upstream int) *patroni {
	t.Helper()
	home, err := pgcluster.TempDir("patroni-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(home)) })
	var ports [3]int
	for i := range ports {
		ports[i], err = pgcluster.FreePort()
		must(t, err)
	}
	p := &patroni{home: home, rest: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), postgres: ports[1]}
	config := filepath.Join(home, "patroni.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `scope: far
name: far1
restapi: {listen: "127.0.0.1:%[2]d", connect_address: "127.0.0.1:%[2]d"}
raft: {data_dir: "%[1]s/raft", self_addr: "127.0.0.1:%[4]d"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 5
    standby_cluster: {host: 127.0.0.1, port: %[5]d, primary_slot_name: far, create_replica_methods: [basebackup]}
    postgresql:
      parameters: {unix_socket_directories: "%[1]s", fsync: "off", hot_standby: "on"}
postgresql:
  listen: 127.0.0.1:%[3]d
  connect_address: 127.0.0.1:%[3]d
  data_dir: %[1]s/data
  bin_dir: %[6]s
  pgpass: %[1]s/pgpass
  use_unix_socket: true
  basebackup: [{checkpoint: fast}]
  authentication: {superuser: {username: %[7]s}, replication: {username: %[7]s}}
`, home, ports[0], ports[1], ports[2], upstream, bin, pgcluster.User), 0o644))
	cmd, err := pgcluster.Command(ctx, "patroni", config)
	must(t, err)
	log, err := os.Create(filepath.Join(home, "log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Setpgid = true // it has a server
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // stops the server too
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("log of Patroni:\n%s", said)
		}
		_ = log.Close()
	})
	return p
}

// awaitRole waits until Patroni says that its server has the role, as load balancers ask it.
func (p *patroni) awaitRole(ctx context.Context, t *testing.T, role string) {
	t.Helper()
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		status, _, err := p.request(ctx, http.MethodGet, "/"+role, "")
		return err == nil && status == http.StatusOK, nil // it may not be there yet
	}))
}

func (p *patroni) configure(ctx context.Context, t *testing.T, change string) {
	t.Helper()
	status, said, err := p.request(ctx, http.MethodPatch, "/config", change)
	must(t, err)
	if status != http.StatusOK {
		t.Fatalf("change of the configuration: status %d: %s", status, said)
	}
}

func (p *patroni) request(ctx context.Context, method, path, body string) (status int, said string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, p.rest+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

func (p *patroni) value(ctx context.Context, sql string) (string, error) {
	out, err := pgcluster.RunAs(ctx, "psql", "-XAt", "-h", p.home, "-p", fmt.Sprint(p.postgres), "-U", pgcluster.User, "-d", "postgres", "-c", sql)
	return string(bytes.TrimSpace(out)), err
}
