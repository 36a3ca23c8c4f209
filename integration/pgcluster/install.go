package pgcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Oldest and Newest are the first and the last major version that this package knows how to run.
const (
	Oldest = 13
	Newest = 18
)

// ErrMissing is the class of every error that says that a PostgreSQL server or client tool is not installed.
var ErrMissing = errors.New("not installed")

// Install is a set of PostgreSQL binaries of one version in one directory.
type Install struct {
	Major  int    // 15
	Bin    string // directory of initdb, postgres and, where HasTools, pg_basebackup and the like
	tooled bool
}

// HasTools tells whether the client tools (pg_receivewal, pg_basebackup, pgbench, psql) are there too.
func (i Install) HasTools() bool { return i.tooled }

// Tool returns the path of the binary called name. The error is of class ErrMissing.
func (i Install) Tool(name string) (string, error) {
	path := filepath.Join(i.Bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("PostgreSQL %d in %s has no %s: %w", i.Major, i.Bin, name, ErrMissing)
	}
	return path, nil
}

// Libraries returns the directory of the libpq that came with the binaries; "" if tools find it by themselves.
func (i Install) Libraries() string {
	dir := filepath.Join(filepath.Dir(i.Bin), "lib")
	if _, err := os.Stat(filepath.Join(dir, "libpq.so.5")); err != nil {
		return ""
	}
	return dir
}

// Majors returns all major versions from Oldest to Newest.
func Majors() []int {
	var majors []int
	for major := Oldest; major <= Newest; major++ {
		majors = append(majors, major)
	}
	return majors
}

// Find returns the server binaries of one major version, from the system's packages or else from the cache that
// integration/fetch-postgres.sh fills. The error, of class ErrMissing, names the command that fetches it.
func Find(major int) (Install, error) {
	for _, dir := range binDirs(major) {
		if install, ok := probe(major, dir); ok {
			return install, nil
		}
	}
	command := fmt.Sprintf("integration/fetch-postgres.sh %d", major)
	return Install{}, fmt.Errorf("find PostgreSQL %d: %w; fetch it with: %s", major, ErrMissing, command)
}

// FindAny returns the newest server that has its client tools beside it, whatever its major version.
// The error is of class ErrMissing.
func FindAny() (Install, error) {
	for major := Newest; major >= Oldest; major-- {
		for _, dir := range binDirs(major) {
			if install, ok := probe(major, dir); ok && install.tooled {
				return install, nil
			}
		}
	}
	return Install{}, fmt.Errorf("find a PostgreSQL server with client tools: %w; as root: apt-get install postgresql, "+
		"or integration/install-postgres.sh", ErrMissing)
}

// FindTool returns the path of a client tool (pgbench, pg_receivewal, pg_basebackup) of the newest version that has it,
// and that version. Beware that pg_receivewal and pg_basebackup refuse servers newer than themselves.
func FindTool(name string) (path string, major int, err error) {
	install, err := FindAny()
	if err != nil {
		return "", 0, err
	}
	path, err = install.Tool(name)
	return path, install.Major, err
}

func binDirs(major int) []string {
	version := strconv.Itoa(major)
	dirs := []string{
		filepath.Join("/usr/lib/postgresql", version, "bin"), // Debian, Ubuntu
		filepath.Join("/usr/pgsql-"+version, "bin"),          // the PGDG packages for rpm systems
	}
	if cache := cacheDir(); cache != "" {
		dirs = append(dirs, filepath.Join(cache, version, "bin"))
	}
	return dirs
}

func probe(major int, dir string) (Install, bool) {
	install := Install{Major: major, Bin: dir}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := install.Tool(name); err != nil {
			return Install{}, false
		}
	}
	missing := slices.ContainsFunc([]string{"pg_receivewal", "pg_basebackup", "pgbench", "psql"}, func(name string) bool {
		_, err := install.Tool(name)
		return err != nil
	})
	install.tooled = !missing
	return install, true
}

// cacheDir returns where integration/fetch-postgres.sh puts servers, by the rule that its header explains, or "".
func cacheDir() string {
	if dir := os.Getenv("WALPROXY_PG_CACHE"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/cache/walproxy/postgres"
	}
	dir, err := os.Getwd()
	for err == nil {
		if text, errRead := os.ReadFile(filepath.Join(dir, "go.mod")); errRead == nil && moduleLine.Match(text) {
			return filepath.Join(dir, ".cache", "postgres")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return ""
}

var moduleLine = regexp.MustCompile(`(?m)^module walproxy$`)
