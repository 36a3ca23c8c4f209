package integration

import (
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestBootstrap makes a standby with nothing but the address of node B, behind node A: pg_basebackup, its WAL streamed beside
// it, writes the standby's configuration too, and the standby follows.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	write(ctx, t, primary, 10000)
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), "")})
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(a.Conninfo(), "")})
	standby, err := primary.BaseBackup(ctx, "", b.Conninfo(), "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream")
	must(t, err)
	own(t, "standby", standby)
	must(t, standby.Start(ctx))
	lsn := write(ctx, t, primary, 1000)
	must(t, standby.WaitReplayed(ctx, lsn))
	sameRows(ctx, t, primary, standby)
}
