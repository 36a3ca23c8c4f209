package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/spool"
)

// holding makes a data directory that holds WAL, so that its node serves consumers without having seen its upstream.
func holding(t *testing.T, dir string) {
	t.Helper()
	log, err := spool.Open(dir, spool.Options{ResetDistance: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	wal := make([]byte, 8192)
	f := link.Frame{Timeline: 1, Start: 16 << 20, RawLen: uint32(len(wal)), Codec: link.CodecRaw, RawSum: link.Checksum(wal), Payload: wal}
	f.Seal()
	id := protocol.Identity{SystemID: 7, SegmentSize: 16 << 20, WALBlockSize: 8192, ServerVersion: "15.18", Settings: map[string]string{}}
	if err := errors.Join(log.SetIdentity(id), log.Append(&f), log.Sync(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// process is a running node and its log.
type process struct {
	*exec.Cmd
	t   *testing.T
	log *bufio.Scanner
}

// await returns the next line of the log with that message.
func (p *process) await(message string) map[string]any {
	p.t.Helper()
	for p.log.Scan() {
		line := map[string]any{}
		if err := json.Unmarshal(p.log.Bytes(), &line); err != nil {
			p.t.Fatalf("%v in %s", err, p.log.Text())
		}
		if strings.Contains(p.log.Text(), "hunter") {
			p.t.Errorf("a password is in the log: %s", p.log.Text())
		}
		if line["msg"] == message {
			return line
		}
	}
	p.t.Fatalf("the log ended before %q", message)
	return nil
}

// reload sends SIGHUP and returns what the log says of it.
func (p *process) reload(message string) map[string]any {
	p.t.Helper()
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
	return p.await(message)
}

// login returns the SQLSTATE of the refusal, "" for none.
func (p *process) login(address, user, password string) string {
	p.t.Helper()
	c, err := pgconn.Connect(p.t.Context(), fmt.Sprintf("postgres://%s:%s@%s/?sslmode=disable&replication=true", user, password, address))
	var refused *pgconn.PgError
	switch {
	case err == nil:
		err = c.Close(p.t.Context())
	case errors.As(err, &refused):
		return refused.Code
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return ""
}

// startNode builds the program and runs a node by a configuration file until the test ends.
func startNode(t *testing.T, dir, file string) *process {
	t.Helper()
	binary := filepath.Join(dir, "walproxy")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	p := &process{Cmd: exec.Command(binary, "run", "--config", file), t: t}
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.log = bufio.NewScanner(out)
	limit := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	t.Cleanup(func() {
		defer limit.Stop()
		_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
		for p.log.Scan() {
		}
		if err := p.Wait(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	return p
}

// TestHangupReloads runs the program as it is built: SIGHUP takes over users and the log's level, names what needs a restart,
// and changes nothing if something is wrong.
func TestHangupReloads(t *testing.T) {
	dir := t.TempDir()
	holding(t, filepath.Join(dir, "data"))
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	configure := func(more string) string {
		return write("c.yaml", fmt.Sprintf("upstream: {conninfo: 'host=127.0.0.1 port=1 user=u password=hunter1'}\ndata: {dir: %s/data}\n"+
			"http: {address: off}\nlisten: {addresses: ['127.0.0.1:0'], auth: {method: scram-sha-256, users_file: %s/users}}\n%s", dir, dir, more))
	}
	write("users", "alice:hunter2\n")
	p := startNode(t, dir, configure(""))
	address := p.await("listening")["address"].(string)
	try := func(user, password, want string) {
		t.Helper()
		if got := p.login(address, user, password); got != want {
			t.Errorf("%s: %q, want %q", user, got, want)
		}
	}
	try("alice", "hunter2", "")

	write("users", "bob:hunter3\n")
	configure("log: {level: debug}\nspool: {keep: 2GiB}\n")
	line := p.reload("configuration reloaded")
	if got := fmt.Sprint(line["reloaded"], line["need_restart"]); got != "[log.level listen.auth.users_file] [spool.keep]" {
		t.Errorf("reloaded %v", got)
	}
	try("bob", "hunter3", "")
	p.await("session ended") // the level is debug now
	try("alice", "hunter2", protocol.CodeInvalidPassword)
	if line := p.await("login refused"); line["level"] != "warn" || line["user"] != "alice" || line["peer"] == nil {
		t.Errorf("logged %v", line)
	}
	for _, broken := range []func(){
		func() { configure("bogus: 1\n") },
		func() { configure(""); write("users", "nonsense") },
	} {
		broken()
		line := p.reload("configuration not reloaded, the node goes on with the old one")
		if line["level"] != "error" || line["error"] == "" {
			t.Errorf("logged %v", line)
		}
		try("bob", "hunter3", "")
	}
}
