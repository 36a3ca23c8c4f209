// Package nodeproc runs walproxy nodes as processes, for integration tests, benchmarks and the demo.
package nodeproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"walproxy/integration/pgcluster"
)

// Options describe a node. Either Config or Upstream is given.
type Options struct {
	Binary   string   // the walproxy to run
	Dir      string   // holds data directory, log and config; made if missing; the caller removes it
	Upstream string   // conninfo; the node then runs without a config file
	Config   string   // YAML without the keys data, listen.addresses and http, which the node adds
	Args     []string // more arguments for `walproxy run`
	Env      []string // more variables, NAME=value
	Port     int      // to listen on; 0 means a free one
}

// Node is one walproxy process after another over one data directory. Methods are not safe for concurrent use, but for
// Metrics and Conninfo.
type Node struct {
	Options Options
	HTTP    string // base URL of its HTTP server
	args    []string
	process *pgcluster.Process
}

// New prepares a node without starting it.
func New(o Options) (*Node, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if o.Port == 0 {
		if o.Port, err = pgcluster.FreePort(); err != nil {
			return nil, err
		}
	}
	httpPort, err := pgcluster.FreePort()
	if err != nil {
		return nil, err
	}
	n := &Node{Options: o, HTTP: fmt.Sprintf("http://127.0.0.1:%d", httpPort)}
	listen, httpAddress := fmt.Sprintf("127.0.0.1:%d", o.Port), fmt.Sprintf("127.0.0.1:%d", httpPort)
	n.args = append([]string{"run", "--data", n.DataDir(), "--listen", listen, "--http", httpAddress}, o.Args...)
	if o.Config == "" {
		n.args = append(n.args, "--upstream", o.Upstream)
		return n, nil
	}
	n.args = append(n.args, "--config", n.configFile())
	return n, n.Configure(o.Config)
}

func (n *Node) configFile() string { return filepath.Join(n.Options.Dir, "config.yaml") }

// Configure gives a node that was made with a Config another one, for its next start.
func (n *Node) Configure(config string) error {
	n.Options.Config = config
	return os.WriteFile(n.configFile(), []byte(config), 0o600)
}

// DataDir returns the node's data directory.
func (n *Node) DataDir() string { return filepath.Join(n.Options.Dir, "data") }

// Conninfo returns the libpq connection string by which consumers reach the node.
func (n *Node) Conninfo() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s", n.Options.Port, pgcluster.User)
}

// Start starts the process and does not wait for it. It dies with us.
func (n *Node) Start() (err error) {
	cmd := exec.Command(n.Options.Binary, n.args...)
	cmd.Env = append(os.Environ(), n.Options.Env...)
	n.process, err = pgcluster.StartProcess(cmd, filepath.Join(n.Options.Dir, "log"), syscall.SIGKILL)
	return err
}

// StartReady starts the process and waits until /readyz says yes. The error holds the end of the log.
func (n *Node) StartReady(ctx context.Context) error {
	if err := n.Start(); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// WaitReady waits until /readyz says yes.
func (n *Node) WaitReady(ctx context.Context) error {
	if err := pgcluster.Until(ctx, n.ready); err != nil {
		return fmt.Errorf("wait for node in %s: %w\n%s", n.Options.Dir, err, n.Log())
	}
	return nil
}

func (n *Node) ready() (bool, error) {
	if !n.process.Running() {
		return false, errors.New("walproxy has ended")
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(n.HTTP + "/readyz")
	if err != nil {
		return false, nil // not listening yet
	}
	return resp.StatusCode == http.StatusOK, resp.Body.Close()
}

// Process returns the running process; nil before the first start.
func (n *Node) Process() *pgcluster.Process { return n.process }

// Stop ends the node with SIGTERM and waits for its drain. A node that was not started is no error.
func (n *Node) Stop(ctx context.Context) error {
	if n.process == nil {
		return nil
	}
	return n.process.Stop(ctx, syscall.SIGTERM)
}

// Kill ends the node with SIGKILL. A node that was not started is no error.
func (n *Node) Kill() {
	if n.process != nil {
		n.process.Kill()
	}
}

// Log returns the end of the node's log.
func (n *Node) Log() string {
	if n.process == nil {
		return ""
	}
	return n.process.Log(16 << 10)
}
