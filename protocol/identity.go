package protocol

import "strconv"

// SystemID is the identifier that initdb gave a cluster; every server and standby of it shares the number.
type SystemID uint64

func (s SystemID) String() string { return strconv.FormatUint(uint64(s), 10) }

// Identity is what a node knows of the cluster whose WAL it carries. It is learnt from the upstream, kept beside the
// spool, and what consumers are told, also while the upstream is away. Values are immutable once shared.
type Identity struct {
	SystemID      SystemID
	SegmentSize   uint32 // wal_segment_size in bytes
	WALBlockSize  uint32 // wal_block_size in bytes
	ServerVersion string // as the upstream reports it: "15.18 (Debian 15.18-0+deb12u1)"
	// Settings holds what SHOW prints on the upstream for each of ShownSettings that it has, in SHOW's own form ("16MB").
	Settings map[string]string
}

// ShownSettings are the settings that consumers ask a walsender for and that a node therefore learns from its upstream.
var ShownSettings = []string{
	"block_size", "data_checksums", "data_directory_mode", "full_page_writes", "in_hot_standby", "max_connections", "max_locks_per_transaction",
	"max_prepared_transactions", "max_wal_senders", "max_worker_processes", "segment_size", "server_version", "server_version_num",
	"track_commit_timestamp", "transaction_read_only", "wal_block_size", "wal_level", "wal_log_hints", "wal_segment_size",
}

// Major returns the upstream's major version (13 to 18 are known), or 0 if ServerVersion does not begin with a number.
func (i Identity) Major() int {
	end := 0
	for end < len(i.ServerVersion) && i.ServerVersion[end] >= '0' && i.ServerVersion[end] <= '9' {
		end++
	}
	major, err := strconv.Atoi(i.ServerVersion[:end])
	if err != nil {
		return 0
	}
	return major
}
