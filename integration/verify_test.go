package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// TestVerify compares servers, nodes, their data directories and what pg_receivewal wrote, over a promotion, and finds a byte
// that was changed.
func TestVerify(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	second := follower(ctx, t, primary, primary.Conninfo())
	hosts := fastNode(primary.Conninfo(), "")
	node := startNode(ctx, t, nodeproc.Options{Config: hosts})
	follows := startNode(ctx, t, nodeproc.Options{Config: fastNode(second.Conninfo(), "")})
	lsn := write(ctx, t, primary, 30000)
	must(t, second.WaitReplayed(ctx, lsn))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return verified(ctx, t, 0, primary.Conninfo(), node.Conninfo()).reaches(1, lsn), nil
	}))
	verified(ctx, t, 0, primary.DataDir, node.DataDir())
	verified(ctx, t, 0, primary.DataDir, primary.Conninfo())
	verified(ctx, t, 0, node.DataDir(), node.Conninfo())
	verified(ctx, t, 3, startPrimary(ctx, t, pgcluster.Options{Major: 15}).Conninfo(), node.Conninfo())

	must(t, primary.Stop(ctx, pgcluster.Fast))
	must(t, second.WaitReplayed(ctx, lsn))
	must(t, second.Promote(ctx))
	lsn = write(ctx, t, second, 30000)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		return verified(ctx, t, 0, second.Conninfo(), follows.DataDir()).reaches(2, lsn), nil
	}))
	verified(ctx, t, 0, second.DataDir, follows.Conninfo())
	if r := verified(ctx, t, 0, second.DataDir, primary.DataDir); r.reaches(2, 0) || !r.reaches(1, 0) {
		t.Errorf("a server that was not promoted: %+v", r)
	}
	if r := verified(ctx, t, 0, second.Conninfo(), second.DataDir); !r.reaches(1, 0) || !r.reaches(2, lsn) {
		t.Errorf("a promoted server and its files: %+v", r)
	}

	at := lsn.Floor(1<<20) - 1<<20 + 54321
	file := filepath.Join(second.WALDir(), protocol.SegmentName(2, at, 1<<20))
	must(t, second.Stop(ctx, pgcluster.Fast))
	flipByte(t, file, int64(at%(1<<20)))
	r := verified(ctx, t, 3, follows.Conninfo(), second.DataDir)
	if r.Difference == nil || r.Difference.LSN != at.String() || r.Difference.Timeline != 2 {
		t.Errorf("changed at %s on timeline 2, reported %+v", at, r.Difference)
	}
}

// flipByte changes one bit of a file.
func flipByte(t *testing.T, name string, offset int64) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = file.ReadAt(b[:], offset)
	must(t, err)
	b[0] ^= 1
	_, err = file.WriteAt(b[:], offset)
	must(t, errors.Join(err, file.Close()))
}

// verification is what walproxy verify --json prints, as far as tests look at it.
type verification struct {
	Compared []struct {
		Timeline protocol.Timeline
		From, To string
		Bytes    uint64
	}
	Difference *struct {
		Timeline protocol.Timeline
		LSN      string
		What     string
	}
}

// reaches reports whether a timeline was compared at least up to lsn.
func (v verification) reaches(tli protocol.Timeline, lsn protocol.LSN) bool {
	for _, r := range v.Compared {
		to, err := protocol.ParseLSN(r.To)
		if err == nil && r.Timeline == tli && r.Bytes > 0 && to >= lsn {
			return true
		}
	}
	return false
}

// verified runs walproxy verify and returns what it says; its exit code must be want.
func verified(ctx context.Context, t *testing.T, want int, a, b string) (v verification) {
	t.Helper()
	out, code := walproxy(ctx, t, "verify", "--json", a, b)
	if code != want {
		t.Fatalf("verify %s %s: exit %d, want %d\n%s", a, b, code, want, out)
	}
	if err := json.Unmarshal([]byte(out[:max(0, strings.LastIndex(out, "}")+1)]), &v); err != nil {
		t.Fatalf("verify %s %s: %v in\n%s", a, b, err, out)
	}
	return v
}

// walproxy runs the program and returns what it prints, stdout first, and its exit code.
func walproxy(ctx context.Context, t *testing.T, args ...string) (string, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String() + stderr.String(), cmd.ProcessState.ExitCode()
}
