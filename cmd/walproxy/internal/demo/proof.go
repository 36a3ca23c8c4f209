package demo

import (
	"context"
	"fmt"
	"reflect"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// checks are queries whose answers must be the same on both servers.
var checks = []struct{ what, sql string }{
	{"pgbench_accounts", "select count(*), sum(abalance), md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts"},
	{"pgbench_tellers", "select count(*), sum(tbalance) from pgbench_tellers"},
	{"pgbench_branches", "select count(*), sum(bbalance) from pgbench_branches"},
	{"pgbench_history", "select count(*), sum(delta), max(mtime) from pgbench_history"},
}

// prove waits until everybody has everything and compares the copies of the WAL byte for byte, and the data by queries.
func (s *scene) prove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.say("\nProof")
	to, err := s.settle(ctx)
	if err != nil {
		return err
	}
	size := s.primary.Options.SegmentBytes()
	copies := []struct {
		what   string
		source pgcluster.Source
	}{
		{"standby's pg_wal", s.standby.WAL()},
		{"pg_receivewal on node A", pgcluster.Source{Dir: s.receiveA.Dir, SegmentBytes: size}},
		{"pg_receivewal on node B", pgcluster.Source{Dir: s.receiveB.Dir, SegmentBytes: size}},
	}
	for _, c := range copies {
		if err := pgcluster.CompareWAL(s.primary.WAL(), c.source, s.timeline, s.from, to); err != nil {
			return fmt.Errorf("%w: primary's WAL and %s: %w", ErrProof, c.what, err)
		}
		s.say("  identical  %-28s %s to %s, %d bytes", c.what, s.from, to, uint64(to-s.from))
	}
	return s.compareData(ctx)
}

// settle ends the load's WAL with a record of its own and waits until the standby has replayed it and both pg_receivewal
// have written it.
func (s *scene) settle(ctx context.Context) (protocol.LSN, error) {
	if err := s.primary.Exec(ctx, "create table walproxy_demo_end()"); err != nil {
		return 0, err
	}
	to, err := s.primary.FlushLSN(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.standby.WaitReplayed(ctx, to); err != nil {
		return 0, fmt.Errorf("wait for the standby: %w", err)
	}
	size := s.primary.Options.SegmentBytes()
	for _, r := range []*pgcluster.Receivewal{s.receiveA, s.receiveB} {
		source := pgcluster.Source{Dir: r.Dir, SegmentBytes: size}
		err := pgcluster.Until(ctx, func() (bool, error) {
			if !r.Running() {
				return false, fmt.Errorf("pg_receivewal ended:\n%s", r.Log(2048))
			}
			// pg_receivewal pads its file with zeros, so wait for the last bytes, not for the size.
			return pgcluster.CompareWAL(s.primary.WAL(), source, s.timeline, to-1, to) == nil, nil
		})
		if err != nil {
			return 0, fmt.Errorf("wait for pg_receivewal in %s: %w", r.Dir, err)
		}
		if err := r.Stop(ctx); err != nil {
			return 0, fmt.Errorf("stop pg_receivewal in %s: %w", r.Dir, err)
		}
	}
	return to, nil
}

func (s *scene) compareData(ctx context.Context) error {
	for _, c := range checks {
		primary, err := s.primary.Query(ctx, c.sql)
		if err != nil {
			return err
		}
		standby, err := s.standby.Query(ctx, c.sql)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(primary, standby) {
			return fmt.Errorf("%w: %s differs: primary %v, standby %v", ErrProof, c.what, primary, standby)
		}
		s.say("  equal      %-28s %s rows", c.what, primary[0][0])
	}
	return nil
}
