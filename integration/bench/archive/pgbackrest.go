package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"walproxy/integration/pgcluster"
)

// pgBackRest measures archive-push and archive-get, zstd level 3, synchronous, one process for each segment.
func (b *bench) pgBackRest(ctx context.Context) (row, error) {
	program, err := exec.LookPath("pgbackrest")
	if err != nil {
		return row{}, fmt.Errorf("%w; integration/install-tools.sh --bench installs it", err)
	}
	dir := filepath.Join(b.dir, "pgbackrest")
	repo := filepath.Join(dir, "repo")
	if err := os.MkdirAll(repo, 0o700); err != nil {
		return row{}, err
	}
	config := fmt.Sprintf(`[global]
repo1-path=%s
log-path=%[2]s
lock-path=%[2]s
spool-path=%[2]s
compress-type=zst
compress-level=3
log-level-file=off
log-level-console=error
[main]
pg1-path=%s
pg1-port=%d
pg1-socket-path=%s
pg1-user=%s
`, repo, dir, b.primary.DataDir, b.primary.Port, b.primary.SocketDir, pgcluster.User)
	file := filepath.Join(dir, "pgbackrest.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return row{}, err
	}
	if err := pgcluster.Own(dir); err != nil {
		return row{}, err
	}
	run := func(args ...string) (cost, error) {
		return command(ctx, nil, program, append([]string{"--config=" + file, "--stanza=main"}, args...)...)
	}
	if _, err := run("stanza-create"); err != nil {
		return row{}, err
	}
	version, err := exec.CommandContext(ctx, program, "version").Output()
	if err != nil {
		return row{}, err
	}
	return b.pushAndGet(row{name: string(version[:max(len(version)-1, 0)]) + " archive-push, zst level 3"},
		func(path string) (cost, error) { return run("archive-push", path) },
		func(file, to string) (cost, error) { return run("archive-get", file, to) }, filepath.Join(repo, "archive"))
}
