package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// pair is one connection through the proxy: ends[0] is the client, ends[1] the target.
type pair struct {
	proxy   *Proxy
	ends    [2]*net.TCPConn
	cancel  context.CancelFunc // ends the waits of both pumps
	dropped [2]atomic.Bool     // by direction: its destination is gone, and what is sent there vanishes
}

// reset ends both sides with RST. It may be called again.
func (c *pair) reset() {
	c.cancel()
	for _, end := range c.ends {
		_ = end.SetLinger(0)
		_ = end.Close()
	}
}

// close ends both sides; what was written reaches its reader, unless there was a reset before.
func (c *pair) close() {
	c.cancel()
	for _, end := range c.ends {
		_ = end.Close()
	}
}

// drop closes the destination of direction d. The other side stays open until the pair is reset or closes by itself.
func (c *pair) drop(d Direction) {
	c.dropped[d].Store(true)
	_ = c.ends[1-d].SetLinger(0)
	_ = c.ends[1-d].Close()
}

// pump passes bytes on in one direction until its source ends or fails.
func (c *pair) pump(ctx context.Context, d Direction) {
	source, destination := c.ends[d], c.ends[1-d]
	buffer := make([]byte, 64<<10)
	for {
		n, err := source.Read(buffer)
		if !c.proxy.wait(ctx, d) {
			return
		}
		if _, errWrite := destination.Write(buffer[:n]); errWrite != nil && !c.dropped[d].Load() {
			c.reset()
			return
		}
		c.proxy.count(d, n)
		switch {
		case err == nil:
		case c.dropped[1-d].Load() && errors.Is(err, net.ErrClosed):
			return // our source is the dropped end; the other pump serves the silent one
		case errors.Is(err, io.EOF) && !c.dropped[d].Load():
			_ = destination.CloseWrite()
			return
		default:
			c.reset()
			return
		}
	}
}

// wait returns when bytes may go on in one direction: after the delay, and not before the stall is over.
// It returns false when the connection has ended.
func (p *Proxy) wait(ctx context.Context, d Direction) bool {
	p.mu.Lock()
	delay := p.faults.delay
	p.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return false
		}
	}
	for {
		p.mu.Lock()
		stalled, changed := p.faults.stalled[d], p.changed
		p.mu.Unlock()
		if !stalled {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *Proxy) count(d Direction, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[d] += int64(n)
}
