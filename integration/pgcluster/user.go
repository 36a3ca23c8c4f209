package pgcluster

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// serverUser is who PostgreSQL runs as: ourselves, or for root, whom PostgreSQL refuses, the user postgres or nobody.
var serverUser = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
		if errUID == nil && errGID == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
})

// Command prepares a command that will run as the user that servers run as (see RunAs), in the directory /, with
// messages in English and without any PG* variable of our own environment. ctx bounds its life.
func Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	credential, err := serverUser()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	return cmd, nil
}

// RunAs runs a command to its end as the unprivileged user that servers run as, which is ourselves unless we are root,
// and returns its standard output. On failure the error holds what it wrote to standard error.
func RunAs(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd, err := Command(ctx, name, args...)
	if err != nil {
		return nil, err
	}
	return output(cmd)
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return stdout.Bytes(), fmt.Errorf("run %s: %w: %s", filepath.Base(cmd.Path), err, text)
	}
	return stdout.Bytes(), nil
}

// TempDir makes a new directory, mode 0700, that belongs to the user that servers run as. The caller removes it.
// (A test's TempDir will not do for root's servers: its parent is closed to others.)
func TempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return "", err
	}
	return dir, own(dir)
}

// Own gives path and everything below it to the user that servers run as.
func Own(path string) error { return own(path) }

// own gives path and everything below it to the user that servers run as.
func own(path string) error {
	credential, err := serverUser()
	if err != nil || credential == nil {
		return err
	}
	return filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, int(credential.Uid), int(credential.Gid))
	})
}

func cleanEnv() []string {
	env := []string{"LC_ALL=C", "HOME=/nonexistent"}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "LC_") && name != "LANG" && name != "HOME" {
			env = append(env, entry)
		}
	}
	return env
}
