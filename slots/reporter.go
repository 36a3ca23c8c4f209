package slots

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"walproxy/protocol"
)

// Own is where the node itself stands, on its current timeline.
type Own struct {
	Written protocol.LSN // behind the last byte taken into the spool
	Flushed protocol.LSN // behind the last byte that is durable
}

// Reporter computes by a policy what to report upstream. Safe for concurrent use.
//
// A report never goes back, except when a new timeline begins below it: consumers that go away or start over take nothing
// back that was true. While a rule has too few consumers, its last value stands.
//
// No report exceeds the node's own position, whatever consumers say: flush is at most Own.Flushed, because the upstream's slot
// follows it and the node must be able to fetch again what is not durable here; write and apply are at most Own.Written.
type Reporter struct {
	policy   Policy
	registry *Registry

	mu        sync.Mutex
	last      protocol.Status
	seen      int            // how many of registry.endings were taken into account
	positions []protocol.LSN // scratch
}

// NewReporter returns a reporter for consumers of registry. policy must be valid.
func NewReporter(policy Policy, registry *Registry) *Reporter {
	return &Reporter{policy: policy, registry: registry}
}

// Status returns what to report now. Its SendTime is for the sender to set.
func (p *Reporter) Status(own Own) protocol.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetBeyondEnds()
	step := func(rule Rule, last, limit protocol.LSN, of func(*ConsumerState) protocol.LSN) protocol.LSN {
		return min(limit, max(last, p.position(rule, limit, of)))
	}
	p.last = protocol.Status{
		Write: step(p.policy.Write, p.last.Write, own.Written, func(c *ConsumerState) protocol.LSN { return c.Write }),
		Flush: step(p.policy.Flush, p.last.Flush, own.Flushed, func(c *ConsumerState) protocol.LSN { return c.Flush }),
		Apply: step(p.policy.Apply, p.last.Apply, own.Written, func(c *ConsumerState) protocol.LSN { return c.Apply }),
	}
	return p.last
}

// forgetBeyondEnds takes back what was reported beyond the end of a timeline: it is not part of the next one.
func (p *Reporter) forgetBeyondEnds() {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	for _, end := range p.registry.endings[p.seen:] {
		p.last.Write, p.last.Flush, p.last.Apply = min(p.last.Write, end), min(p.last.Flush, end), min(p.last.Apply, end)
	}
	p.seen = len(p.registry.endings)
}

// position returns what a rule yields at the moment, or 0 if that is nothing. own is the node's own position.
func (p *Reporter) position(rule Rule, own protocol.LSN, of func(*ConsumerState) protocol.LSN) protocol.LSN {
	switch rule.Kind {
	case RuleNone:
		return 0
	case RuleSpool:
		return own
	}
	p.collect(rule, of)
	n := len(p.positions)
	switch {
	case n == 0 || rule.Kind == RuleAny && n < rule.Count:
		return 0
	case rule.Kind == RuleMin:
		return slices.Min(p.positions)
	case rule.Kind == RuleConsumer:
		return slices.Max(p.positions)
	}
	slices.SortFunc(p.positions, func(a, b protocol.LSN) int { return cmp.Compare(b, a) })
	return p.positions[rule.Count-1]
}

// collect gathers the positions that consumers report for a rule. One that reports none is no candidate, as on a server, where
// pg_receivewal without a slot is no synchronous standby.
//
// Source: PostgreSQL src/backend/replication/syncrep.c, SyncRepGetCandidateStandbys (13-18).
func (p *Reporter) collect(rule Rule, of func(*ConsumerState) protocol.LSN) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	p.positions = p.positions[:0]
	for _, c := range p.registry.consumers {
		reported := of(&c.state)
		if reported == 0 || rule.Kind == RuleConsumer && !strings.EqualFold(c.state.Name, rule.Name) {
			continue
		}
		p.positions = append(p.positions, p.registry.counted(c.state.Timeline, reported))
	}
}
