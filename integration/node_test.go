package integration

import (
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// TestReceivewalBehindOneNode: pg_receivewal on a node writes what it writes on the primary, and what the primary wrote.
func TestReceivewalBehindOneNode(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	_, major, err := pgcluster.FindTool("pg_receivewal")
	must(t, err)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: major})
	from, err := primary.SwitchWAL(ctx)
	must(t, err)
	from = from.Next(primary.Options.SegmentBytes())
	node := startNode(ctx, t, nodeproc.Options{Upstream: primary.Conninfo()})
	direct, behind := receive(t, primary.Conninfo()), receive(t, node.Conninfo())

	to := write(ctx, t, primary, 20000)
	segmentBytes := primary.Options.SegmentBytes()
	sources := []pgcluster.Source{{Dir: direct.Dir, SegmentBytes: segmentBytes}, {Dir: behind.Dir, SegmentBytes: segmentBytes}}
	for _, source := range sources {
		must(t, pgcluster.AwaitWAL(ctx, primary.WAL(), source, 1, from, to))
	}
	must(t, direct.Stop(ctx))
	must(t, behind.Stop(ctx))
	must(t, node.Stop(ctx))
	sameWAL(t, 1, from, to, primary.WAL(), sources...)
}
