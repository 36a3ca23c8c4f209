package pgcluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options describe a cluster to create. The zero value is good, but for Major.
type Options struct {
	Major      int      // 13 to 18; the binaries come from Find
	Dir        string   // where everything of the cluster lives; must not exist; "" means a new temporary directory
	Port       int      // 0 means a free one
	SegmentMiB int      // WAL segment size: a power of two from 1 to 1024; 0 means PostgreSQL's 16
	Checksums  bool     // data checksums
	NoFsync    bool     // fsync=off: faster, but a crash of the machine (not of the server) loses data
	Autovacuum bool     // off by default, so that a test's WAL is the test's own
	KeepMiB    int      // wal_keep_size; 0 means 1024, so that a test can compare all WAL at its end
	Conf       []string // more lines for postgresql.conf, in the order of precedence: a later line wins

	Templates *Templates // the data directory is a copy from these; nil: initdb makes it
}

func (o *Options) applyDefaults() {
	if o.SegmentMiB == 0 {
		o.SegmentMiB = 16
	}
	if o.KeepMiB == 0 {
		o.KeepMiB = 1024
	}
}

func (o Options) validate() error {
	var problems []error
	if o.Major < Oldest || o.Major > Newest {
		problems = append(problems, fmt.Errorf("major version %d: want %d to %d", o.Major, Oldest, Newest))
	}
	if o.SegmentMiB < 1 || o.SegmentMiB > 1024 || o.SegmentMiB&(o.SegmentMiB-1) != 0 {
		problems = append(problems, fmt.Errorf("segment size %d MiB: want a power of two from 1 to 1024", o.SegmentMiB))
	}
	return errors.Join(problems...)
}

// SegmentBytes returns the WAL segment size in bytes.
func (o Options) SegmentBytes() uint64 { return uint64(o.SegmentMiB) << 20 }

func (o Options) initdbArgs(dataDir string) []string {
	args := []string{
		"--pgdata", dataDir, "--username", User, "--auth", "trust", "--no-sync", "--no-locale", "--encoding", "UTF8",
		fmt.Sprintf("--wal-segsize=%d", o.SegmentMiB),
	}
	switch {
	case o.Checksums:
		args = append(args, "--data-checksums")
	case o.Major >= 18: // where they became the default
		args = append(args, "--no-data-checksums")
	}
	return args
}

// conf returns the lines for postgresql.conf: a small server that a stock standby can follow.
func (o Options) conf(port int, socketDir string) string {
	onOff := map[bool]string{false: "off", true: "on"}
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		fmt.Sprintf("port = %d", port),
		fmt.Sprintf("unix_socket_directories = '%s'", socketDir),
		"max_connections = 50",
		"shared_buffers = 16MB",
		"jit = off",
		"dynamic_shared_memory_type = mmap", // in the data directory: what a killed server leaves goes with it
		"wal_level = replica",
		"hot_standby = on",
		"max_wal_senders = 20",
		"max_replication_slots = 20",
		fmt.Sprintf("min_wal_size = %dMB", max(32, 2*o.SegmentMiB)),
		fmt.Sprintf("max_wal_size = %dMB", max(128, 4*o.SegmentMiB)),
		fmt.Sprintf("wal_keep_size = %dMB", o.KeepMiB),
		"fsync = " + onOff[!o.NoFsync],
		"autovacuum = " + onOff[o.Autovacuum],
		"log_line_prefix = '%m [%p] %q%a '",
		"log_replication_commands = on",
		"log_min_error_statement = panic", // else each replication command shows twice
		"timezone = 'UTC'",
		"log_timezone = 'UTC'",
	}
	return strings.Join(slices.Concat(lines, o.Conf), "\n") + "\n"
}
