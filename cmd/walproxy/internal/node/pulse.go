package node

import (
	"context"
	"sync"
	"time"

	"walproxy/slots"
)

const (
	pulseInterval = time.Second
	// rateWindow is what rates and forecasts look back on: long enough to even out checkpoints' bursts, short enough to show a
	// change soon.
	rateWindow = time.Minute
)

// pulse samples how positions move: the end of the node's WAL, the size of the spool, what each consumer has. Lag in seconds,
// rates and forecasts come from it. The zero value is ready; safe for concurrent use.
type pulse struct {
	end, spool slots.Pace

	mu        sync.Mutex
	consumers map[int32]*slots.Pace // by pid
}

// beat samples at the pulse interval until ctx ends.
func (n *Node) beat(ctx context.Context) error {
	tick := time.NewTicker(pulseInterval)
	defer tick.Stop()
	for {
		n.sample(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Node) sample(now time.Time) {
	state, live := n.log.State(), n.registry.Consumers()
	p := &n.pulse
	p.spool.Add(now, uint64(state.Bytes))
	if state.End != 0 {
		p.end.Add(now, uint64(state.End))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.consumers
	p.consumers = make(map[int32]*slots.Pace, len(live))
	for _, c := range live {
		pace := before[c.PID]
		if pace == nil {
			pace = new(slots.Pace)
		}
		pace.Add(now, uint64(c.Has()))
		p.consumers[c.PID] = pace
	}
}

// rateOf returns how fast a consumer moves, in bytes per second.
func (p *pulse) rateOf(pid int32, now time.Time) float64 {
	p.mu.Lock()
	pace := p.consumers[pid]
	p.mu.Unlock()
	if pace == nil {
		return 0
	}
	return pace.Rate(now, rateWindow)
}
