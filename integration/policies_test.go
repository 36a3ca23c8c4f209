package integration

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
)

// policies are what the node that serves the standbys near and far is told to acknowledge, and which of them a commit waits for.
var policies = []struct {
	write, flush, apply string
	waits               map[string]string // by synchronous_commit: who must be held for a commit to wait; empty: nobody
	frees               map[string]string // by synchronous_commit: who may be held without
	promised            []string          // who has every commit that was acknowledged; empty: the node
}{
	{"spool", "spool", "none", nil, holding("near far", "remote_write", "on"), nil},
	{"min", "min", "min", holding("near", levels...), nil, []string{"near", "far"}},
	{"any 1", "any 1", "any 1", holding("near far", levels...), holding("near", levels...), []string{"near or far"}},
	{"any 2", "any 2", "any 2", holding("far", levels...), nil, []string{"near", "far"}},
	{"consumer far", "consumer far", "consumer far", holding("far", levels...), holding("near", levels...), []string{"far"}},
	{"spool", "consumer near", "any 1", holding("near", "on"), holding("near far", "remote_write"), []string{"near"}},
}

var levels = []string{"remote_write", "on", "remote_apply"}

func holding(who string, levels ...string) map[string]string {
	all := map[string]string{}
	for _, level := range levels {
		all[level] = who
	}
	return all
}

// TestPoliciesSoak has a primary wait for a node as its synchronous standby, for each policy and each synchronous_commit, with the
// two standbys behind one node and behind two. A commit waits while the standbys are held that the policy names, and only then;
// after a kill of primary and nodes every acknowledged commit is where the policy promises it.
func TestPoliciesSoak(t *testing.T) {
	t.Parallel()
	for nodes, name := range []string{"one node", "two nodes"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMatrix(setting(t, 3*patience), t, nodes+1)
			all := rounds(0, 1) == 1 // otherwise each policy once, every other one with two nodes
			for i, p := range policies {
				if i%2 != nodes && !all {
					continue
				}
				m.configure(p.write, p.flush, p.apply)
				for _, level := range levels {
					if who, ok := p.waits[level]; ok {
						m.waits(level, who)
					}
					if who, ok := p.frees[level]; ok {
						m.returns(level, who)
					}
				}
				if p.apply == "none" {
					m.neverApplied()
				}
				if i == nodes || all {
					m.kill(p.promised)
				}
			}
		})
	}
}

// matrix is a primary, one node or two in a row, and two standbys behind the last.
type matrix struct {
	ctx      context.Context
	t        *testing.T
	primary  *pgcluster.Cluster
	nodes    []*nodeproc.Node
	standbys map[string]*pgcluster.Cluster // near, far
	policy   string
}

func startMatrix(ctx context.Context, t *testing.T, nodes int) *matrix {
	t.Helper()
	m := &matrix{ctx: ctx, t: t, standbys: map[string]*pgcluster.Cluster{}}
	m.primary = startPrimary(ctx, t, pgcluster.Options{Major: 15, Conf: fastRetry})
	for _, name := range []string{"near", "far"} {
		m.standbys[name] = cloneOf(ctx, t, m.primary)
	}
	upstream := m.primary.Conninfo() + " application_name=sync"
	for i := range nodes {
		m.nodes = append(m.nodes, startNode(ctx, t, nodeproc.Options{Config: m.config(i, upstream, "spool", "spool", "none")}))
		upstream = m.nodes[i].Conninfo() + " application_name=node"
	}
	for name, standby := range m.standbys {
		must(t, standby.MakeStandby(m.nodes[nodes-1].Conninfo()+" application_name="+name, ""))
		must(t, standby.Start(ctx))
	}
	must(t, m.primary.Configure("synchronous_standby_names = 'sync'"))
	must(t, m.primary.Reload())
	return m
}

// config is that of the i-th node. Standbys that are held stay connected, and reports are frequent.
func (m *matrix) config(i int, upstream, write, flush, apply string) string {
	return fmt.Sprintf("upstream:\n  conninfo: %q\n  status_interval: 100ms\n  backoff_max: 300ms\nlisten:\n  wal_sender_timeout: 1h\n"+
		"  drain_timeout: 100ms\nacknowledge:\n  write: %s\n  flush: %s\n  apply: %s\n", upstream, write, flush, apply)
}

// configure restarts the nodes with a policy. Of two nodes the first passes on what the second says; for spool it speaks for itself.
func (m *matrix) configure(write, flush, apply string) {
	m.t.Helper()
	m.policy = fmt.Sprintf("write: %s, flush: %s, apply: %s", write, flush, apply)
	upstream := m.primary.Conninfo() + " application_name=sync"
	for i, n := range m.nodes {
		rules := []string{write, flush, apply}
		if i < len(m.nodes)-1 {
			for j, rule := range rules {
				if rule != "spool" && rule != "none" {
					rules[j] = "consumer node"
				}
			}
		}
		must(m.t, n.Stop(m.ctx))
		must(m.t, n.Configure(m.config(i, upstream, rules[0], rules[1], rules[2])))
		must(m.t, n.StartReady(m.ctx))
		upstream = n.Conninfo() + " application_name=node"
	}
	m.settled()
}

// settled waits until the primary waits for the node, and the node has both standbys, who have all there is.
func (m *matrix) settled() {
	m.t.Helper()
	last := m.nodes[len(m.nodes)-1]
	must(m.t, pgcluster.Until(m.ctx, func() (bool, error) {
		state, err := m.primary.Value(m.ctx, "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication")
		if err != nil || state != "sync" {
			return false, err
		}
		lsn, err := m.primary.FlushLSN(m.ctx)
		must(m.t, err)
		there := 0
		for _, c := range jsonOf[statusJSON](m.t, last, "status").Consumers {
			if (c.Name == "near" || c.Name == "far") && c.Flush != "" && parseLSN(m.t, c.Flush) >= lsn {
				there++
			}
		}
		return there == 2, nil
	}))
}

// hold keeps standbys from doing what a level waits for, until the function it returns is called.
func (m *matrix) hold(level, who string) (release func()) {
	m.t.Helper()
	var undo []func()
	for _, name := range strings.Fields(who) {
		standby := m.standbys[name]
		if level == "remote_apply" { // it goes on to write and to flush
			must(m.t, standby.Exec(m.ctx, "SELECT pg_wal_replay_pause()"))
			must(m.t, pgcluster.Until(m.ctx, func() (bool, error) {
				state, err := standby.Value(m.ctx, "SELECT pg_get_wal_replay_pause_state()")
				return state == "paused", err
			}))
			undo = append(undo, func() { must(m.t, standby.Exec(m.ctx, "SELECT pg_wal_replay_resume()")) })
			continue
		}
		must(m.t, standby.SignalAll(syscall.SIGSTOP))
		undo = append(undo, func() { must(m.t, standby.SignalAll(syscall.SIGCONT)) })
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}
}

// commit begins a commit that waits as level says.
func (m *matrix) commit(level string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- m.primary.Exec(m.ctx, "SET synchronous_commit = "+level+"; INSERT INTO t (text) VALUES ('"+level+"')")
	}()
	return done
}

// waits checks that a commit does not return while the standbys are held, and that it does afterwards.
func (m *matrix) waits(level, who string) {
	m.t.Helper()
	release := m.hold(level, who)
	committed := m.commit(level)
	m.stuck(committed, level)
	release()
	must(m.t, <-committed)
}

// stuck checks that a commit waits although all nodes have its WAL on disk and have reported since.
func (m *matrix) stuck(committed <-chan error, level string) {
	m.t.Helper()
	must(m.t, pgcluster.Until(m.ctx, func() (bool, error) {
		select {
		case err := <-committed:
			m.t.Fatalf("%s: a commit with %s returned at once, %v", m.policy, level, err)
		default:
		}
		waiting, err := m.primary.Value(m.ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		return waiting == "1", err
	}))
	lsn, err := m.primary.FlushLSN(m.ctx)
	must(m.t, err)
	for _, n := range m.nodes {
		must(m.t, pgcluster.Until(m.ctx, func() (bool, error) {
			return parseLSN(m.t, jsonOf[statusJSON](m.t, n, "status").Position.Flushed) >= lsn, nil
		}))
	}
	now, err := m.primary.Value(m.ctx, "SELECT clock_timestamp()")
	must(m.t, err)
	must(m.t, pgcluster.Until(m.ctx, func() (bool, error) {
		reported, err := m.primary.Value(m.ctx, "SELECT count(*) FROM pg_stat_replication WHERE reply_time > '"+now+"'")
		return reported == "1", err
	}))
	select {
	case err := <-committed:
		m.t.Fatalf("%s: a commit with %s returned (%v) although what it waits for is held", m.policy, level, err)
	default:
	}
}

// returns checks that a commit returns although the standbys are held.
func (m *matrix) returns(level, who string) {
	m.t.Helper()
	release := m.hold(level, who)
	select {
	case err := <-m.commit(level):
		must(m.t, err)
	case <-m.ctx.Done():
		m.t.Fatalf("%s: a commit with %s waits although only %s is held", m.policy, level, who)
	}
	release()
	m.settled()
}

// neverApplied checks that a node that was not told to report what is applied reports nothing: replay_lsn is NULL, by which tools
// tell a receiver from a standby, and remote_apply waits.
func (m *matrix) neverApplied() {
	m.t.Helper()
	committed := m.commit("remote_apply")
	m.stuck(committed, "remote_apply")
	replayed, err := m.primary.Value(m.ctx, "SELECT coalesce(replay_lsn::text, 'NULL') FROM pg_stat_replication")
	must(m.t, err)
	if replayed != "NULL" {
		m.t.Errorf("%s: the primary is told of replay up to %s", m.policy, replayed)
	}
	must(m.t, m.primary.Exec(m.ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
	must(m.t, <-committed) // it is committed, and was told that it may not be replicated
}

// kill kills primary and nodes under load, looks for the acknowledged commits where they are promised, and starts all again.
func (m *matrix) kill(promised []string) {
	m.t.Helper()
	l := startLedger(m.ctx, m.t, m.primary)
	l.more(m.ctx, m.t, 20)
	must(m.t, m.primary.Kill9())
	for _, n := range m.nodes {
		n.Kill()
	}
	l.stop(m.t)
	lost := func(name string) []int {
		standby := m.standbys[name]
		received, err := standby.FlushLSN(m.ctx)
		must(m.t, err)
		must(m.t, standby.WaitReplayed(m.ctx, received))
		return l.missing(m.ctx, m.t, standby)
	}
	for _, name := range promised {
		if name == "near or far" {
			if a, b := lost("near"), lost("far"); len(a) > 0 && len(b) > 0 {
				m.t.Errorf("%s: %v are not on one standby, %v not on the other", m.policy, a, b)
			}
		} else if missing := lost(name); len(missing) > 0 {
			m.t.Errorf("%s: %v are not on standby %s", m.policy, missing, name)
		}
	}
	for _, n := range m.nodes {
		must(m.t, n.StartReady(m.ctx))
	}
	if len(promised) == 0 { // the node has it, and the standbys get it from there
		must(m.t, pgcluster.Until(m.ctx, func() (bool, error) { return len(lost("near"))+len(lost("far")) == 0, nil }))
	}
	must(m.t, m.primary.Start(m.ctx))
	m.settled()
}
