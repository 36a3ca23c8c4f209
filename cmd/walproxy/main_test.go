package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/cmd/walproxy/internal/inspect"
	"walproxy/protocol/link"
	"walproxy/protocol/walreceiver"
	"walproxy/slots"
	"walproxy/slots/spool"
	"walproxy/slots/statefile"
)

var update = flag.Bool("update", false, "write the golden files")

// command runs the program in this process.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	code, got, stderr := command("help")
	file := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || code != exitOK || stderr != "" || got != string(want) {
		t.Errorf("exit %d, %v, stderr %q, got\n%s\nwant\n%s", code, err, stderr, got, want)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := command("version")
	if code != exitOK || !strings.HasPrefix(out, "walproxy ") || !strings.Contains(out, fmt.Sprintf("frame format %d, link %s\n", link.Version, link.LinkVersion)) {
		t.Errorf("exit %d, %q", code, out)
	}
}

// What make build says of the build goes into variables that exist; TestBinary shows what becomes of them.
func TestMakeSaysTheVersion(t *testing.T) {
	out, err := exec.Command("make", "-n", "-C", repository, "build").CombinedOutput()
	for _, name := range []string{"version", "revision", "revisionTime"} {
		if err != nil || !strings.Contains(string(out), "-X main."+name+"=") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {fmt.Errorf("a: %w", &usageError{errors.New("x")}), 2}, {fmt.Errorf("a: %w", &config.Error{}), 2},
		{fmt.Errorf("a: %w", inspect.ErrDamaged), 3}, {errors.Join(inspect.ErrDamaged, nil), 3},
		{fmt.Errorf("a: %w", &spool.IdentityError{}), 4}, {&walreceiver.FatalError{Err: &spool.CorruptError{}}, 4},
		{errors.Join(fmt.Errorf("a: %w", &walreceiver.DivergedError{})), 4}, {fmt.Errorf("a: %w", spool.ErrHistoryDiffers), 4},
		{&slots.CorruptError{Err: errors.New("x")}, 4}, {fmt.Errorf("a: %w", &link.VersionError{}), 4},
		{fmt.Errorf("a: %w", &statefile.VersionError{}), 4}, {&walreceiver.FatalError{Err: syscall.EIO}, 1},
		{&walreceiver.FatalError{Err: &config.Error{}}, 2},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.want)
		}
	}
}

// TestBinary runs the program as it is built: exit codes, what goes to stdout and what to stderr.
func TestBinary(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "walproxy")
	said := "-X main.version=v9.8.7 -X main.revision=abcdef -X main.revisionTime=today" // as the Makefile does
	if out, err := exec.Command("go", "build", "-ldflags", said, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good.yaml", "upstream: {conninfo: 'host=h user=u password=hunter2'}\ndata: {dir: /d}\n")
	noHTTP := write("nohttp.yaml", "upstream: {conninfo: host=h}\ndata: {dir: /d}\nhttp: {address: off}\n")
	bad := write("bad.yaml", "upstream: {conninfo: 'host=h user=u password=hunter2', slott: x}\nspool: {cap: 1}\n")
	window := write("w.win", string(link.WindowHeader{Kind: link.WindowLive, Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: 4 << 20}.Append(nil)))
	damaged := write("d.win", "this is not a window, but it is long enough")
	slotless := filepath.Join(dir, "data")
	if err := os.Mkdir(slotless, 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join("data", "slots"), "walproxy slots 1 crc32c=00000000\n{}\n")
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string // parts; empty: nothing at all
	}{
		{[]string{"version"}, 0, "walproxy v9.8.7 (revision abcdef, today)\n", ""},
		{[]string{"--help"}, 0, "Exit codes:", ""},
		{[]string{}, 2, "Available Commands:", "walproxy: walproxy: want a command; see walproxy help\n"},
		{[]string{"bogus"}, 2, "", `walproxy: unknown command "bogus" for "walproxy"; see walproxy help`},
		{[]string{"version", "x"}, 2, "", "see walproxy help"},
		{[]string{"run", "--bogus"}, 2, "", "walproxy: unknown flag: --bogus; see walproxy help\n"},
		{[]string{"run"}, 2, "", "upstream.conninfo: is missing"},
		{[]string{"run", "--config", bad}, 2, "", "line 1: upstream.slott: unknown key; do you mean slot?"},
		{[]string{"run", "--upstream", "postgres://u:hunter2@h:nan/", "--data", dir}, 2, "", "upstream.conninfo: is not a libpq connection string"},
		{[]string{"run", "--config", filepath.Join(dir, "none")}, 1, "", "read configuration: open "},
		{[]string{"run", "--upstream", "host=127.0.0.1 port=1 user=u", "--data", slotless}, 4, "", "corrupt slot file"},
		{[]string{"run", "--upstream", "host=h oauth_client_secret=hunter2", "--data", "/d"}, 2, "", "oauth_client_secret is not supported"},
		{[]string{"config"}, 2, "check", "want a command"},
		{[]string{"config", "check"}, 2, "", "see walproxy help"},
		{[]string{"config", "check", good}, 0, "good.yaml is good: upstream u@h:5432, listens on [127.0.0.1:5433], data in /d\n", ""},
		{[]string{"config", "check", bad}, 2, "", "3 problems"},
		{[]string{"status", "x"}, 2, "", "see walproxy help"},
		{[]string{"status", "--http", "127.0.0.1:1"}, 1, "", "walproxy: ask node at 127.0.0.1:1: "},
		{[]string{"status", "--config", noHTTP}, 2, "", "http.address is off"},
		{[]string{"slots"}, 2, "create", "want a command"},
		{[]string{"slots", "list", "--http", "127.0.0.1:1", "--json"}, 1, "", "walproxy: ask node at 127.0.0.1:1: "},
		{[]string{"slots", "create"}, 2, "", "see walproxy help"},
		{[]string{"slots", "create", "Bad"}, 2, "", "contains invalid character"},
		{[]string{"slots", "drop", "a", "--node", "host=127.0.0.1 port=1 password=hunter2"}, 1, "", "walproxy: connect to the node: "},
		{[]string{"inspect"}, 2, "", "see walproxy help"},
		{[]string{"inspect", window}, 0, "window w.win", ""},
		{[]string{"inspect", "--check", "--windows", damaged}, 3, "DAMAGED", "walproxy: damaged in 1 places\n"},
		{[]string{"inspect", filepath.Join(dir, "none")}, 1, "", "walproxy: stat "},
	} {
		var out, errs bytes.Buffer
		cmd := exec.Command(binary, c.args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%q: exit %d, want %d", c.args, got, c.code)
		}
		for what, stream := range map[string][2]string{"stdout": {out.String(), c.stdout}, "stderr": {errs.String(), c.stderr}} {
			if got, want := stream[0], stream[1]; want == "" && got != "" || !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
				t.Errorf("%q: %s is %q, want %q", c.args, what, got, want)
			}
		}
	}
}
