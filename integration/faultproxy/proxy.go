// Package faultproxy is a TCP proxy that misbehaves on demand: it cuts connections, stalls them, lets one side believe that
// a dead connection lives, delays and limits the bytes. Tests put it between two servers.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy listens on a port of 127.0.0.1 and passes every connection on to the target. All methods are safe for
// concurrent use and act on present and future connections alike, unless they say otherwise.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup // the accept loop and two pumps for each connection

	mu      sync.Mutex
	pairs   map[*pair]struct{}
	faults  faults
	changed chan struct{} // closed and replaced whenever faults change
	closed  bool
	passed  [2]int64
}

// faults is what is wrong with the network now.
type faults struct {
	refuse  bool
	stalled [2]bool
	delay   time.Duration
}

// Direction is a way through the proxy.
type Direction int

const (
	Up   Direction = iota // from the client to the target
	Down                  // from the target to the client
)

// Listen starts a proxy to target, "host:port", on a free port. The caller closes it.
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the proxy to %s: %w", target, err)
	}
	p := &Proxy{listener: listener, target: target, pairs: make(map[*pair]struct{}), changed: make(chan struct{})}
	p.work.Go(p.accept)
	return p, nil
}

// Addr returns "host:port" of the proxy.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the port of the proxy.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Connections returns how many connections are open. It counts half-open ones.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Passed returns how many bytes have gone through in one direction since the start.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

// Cut resets (RST) every present connection on both sides. New ones are accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.reset()
	}
}

// Refuse closes new connections at once, or no longer. Present ones stay.
func (p *Proxy) Refuse(on bool) { p.change(func(f *faults) { f.refuse = on }) }

// Stall stops passing bytes on in one direction, or goes on. Connections stay open, and the sender blocks once the
// buffers on the way are full. No byte is lost.
func (p *Proxy) Stall(d Direction, on bool) { p.change(func(f *faults) { f.stalled[d] = on }) }

// StallAll is Stall in both directions.
func (p *Proxy) StallAll(on bool) { p.change(func(f *faults) { f.stalled = [2]bool{on, on} }) }

// Delay makes the proxy wait before it passes on what it has read, in both directions. It limits the rate too, to one read
// of at most 64 KiB for each delay. 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.change(func(f *faults) { f.delay = d }) }

// HalfOpen closes the target's side of every present connection and leaves the client's open and silent, as when the
// server's machine loses its power. What the client sends vanishes.
func (p *Proxy) HalfOpen() { p.drop(Up) }

// HalfOpenDown is the reverse: the client's side is closed, and the target's stays open and silent.
func (p *Proxy) HalfOpenDown() { p.drop(Down) }

func (p *Proxy) drop(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for pair := range p.pairs {
		pair.drop(d)
	}
}

// Close ends the proxy and all its connections, and waits for its goroutines. It may be called again.
func (p *Proxy) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	for pair := range p.pairs {
		pair.reset()
	}
	p.mu.Unlock()
	var err error
	if !closed {
		err = p.listener.Close()
	}
	p.work.Wait()
	return err
}

func (p *Proxy) change(f func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.faults)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client gave up already
		}
		p.mu.Lock()
		refuse := p.faults.refuse || p.closed
		p.mu.Unlock()
		if refuse {
			_ = client.Close()
			continue
		}
		target, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.join(client.(*net.TCPConn), target.(*net.TCPConn))
	}
}

// join starts the two pumps of a connection.
func (p *Proxy) join(client, target *net.TCPConn) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &pair{proxy: p, ends: [2]*net.TCPConn{client, target}, cancel: cancel}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.reset()
		return
	}
	p.pairs[c] = struct{}{}
	p.work.Go(func() {
		var pumps sync.WaitGroup
		pumps.Go(func() { c.pump(ctx, Up) })
		pumps.Go(func() { c.pump(ctx, Down) })
		pumps.Wait()
		c.close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.pairs, c)
	})
}
