package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/zap"

	"walproxy/cmd/walproxy/internal/config"
)

// What is given on the command line overrides the file, the rest of the file stays.
func TestFlagsOverrideTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	content := "upstream: {conninfo: host=file}\nlisten: {addresses: ['127.0.0.1:1', '127.0.0.1:2'], max_connections: 7}\nhttp: {address: off}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(args ...string) *config.Config {
		t.Helper()
		c, err := loadByFlags(args)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	want := config.Default()
	want.Upstream.Conninfo, want.Data.Dir, want.Listen.MaxConnections = "host=file", "/d", 7
	want.Listen.Addresses, want.HTTP.Address = []config.Address{"127.0.0.1:1", "127.0.0.1:2"}, config.Off
	if got := load("-c", file, "--data", "/d"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	want.Upstream.Conninfo, want.Listen.Addresses, want.HTTP.Address = "host=flag", []config.Address{"unix:/s", "[::1]:9"}, "127.0.0.1:8"
	if got := load("--config", file, "--data", "/d", "--upstream", "host=flag", "--listen", "unix:/s", "--listen", "[::1]:9", "--http", "127.0.0.1:8"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	want = config.Default()
	want.Upstream.Conninfo, want.Data.Dir = "host=flag", "/d"
	if got := load("--upstream", "host=flag", "--data", "/d"); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	var problems *config.Error
	if _, err := loadByFlags([]string{"--upstream", "host=flag", "--data", "/d", "--listen", "0.0.0.0:5433"}); !errors.As(err, &problems) || problems.Problems[0].Key != "listen.addresses[0]" {
		t.Errorf("an address open to all without users: %v", err)
	}
}

func loadByFlags(args []string) (*config.Config, error) {
	var flags runFlags
	cmd := newRunCommandWith(&flags)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	return flags.load(cmd)
}

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	logger, level := newLogger(config.Log{Level: "warn", Format: "auto"}, &out)
	logger.Info("hidden")
	logger.Named("walsender").Warn("shown", zap.String("peer", "p"))
	var line struct{ Level, Logger, Msg, Peer, Time string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %q", err, out.String())
	}
	if line.Level != "warn" || line.Logger != "walsender" || line.Msg != "shown" || line.Peer != "p" || line.Time == "" {
		t.Errorf("%+v", line)
	}
	out.Reset()
	if level.SetLevel(zap.DebugLevel); !logger.Core().Enabled(zap.DebugLevel) {
		t.Error("the level does not change")
	}
	logger, _ = newLogger(config.Log{Level: "debug", Format: "console"}, &out)
	logger.Debug("shown", zap.String("peer", "p"))
	if got := out.String(); !strings.Contains(got, "\tDEBUG\tshown\t{\"peer\": \"p\"}\n") {
		t.Errorf("console: %q", got)
	}
	out.Reset()
	conninfo := config.Conninfo("host=h user=u password=hunter2")
	logger, _ = newLogger(config.Log{Level: "info", Format: "json"}, &out)
	logger.Info("x", zap.Any("a", conninfo), zap.Any("c", config.Config{Upstream: config.Upstream{Conninfo: conninfo}}),
		zap.Stringer("b", conninfo), zap.Reflect("u", config.User{Name: "n", Verifier: "hunter2"}))
	if got := out.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, "u@h:5432") {
		t.Errorf("json: %q", got)
	}
	if isTerminal(&out) {
		t.Error("a buffer is taken for a terminal")
	}
}
