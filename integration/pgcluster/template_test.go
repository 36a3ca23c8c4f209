package pgcluster_test

import (
	"context"
	"testing"

	"walproxy/integration/pgcluster"
)

func TestTemplates(t *testing.T) {
	templates, err := pgcluster.NewTemplates()
	must(t, err)
	t.Cleanup(func() { must(t, templates.Close()) })
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		const query = "SELECT system_identifier FROM pg_control_system()"
		seen := map[string]bool{}
		for range 2 { // the second in the directory of the first
			c := create(ctx, t, pgcluster.Options{Major: major, SegmentMiB: 1, Templates: templates})
			must(t, c.Start(ctx))
			must(t, c.Exec(ctx, "CREATE TABLE t AS SELECT 1"))
			must(t, c.Restart(ctx, pgcluster.Immediate)) // which reads the WAL, and its pages name the system
			seen[value(ctx, t, c, query)] = true
			must(t, c.Close())
		}
		if len(seen) != 2 {
			t.Errorf("two copies of a template are of one system: %v", seen)
		}
	})
}
