package walsender

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of failed logins. An address may fail a number of times at once and then once per failureInterval; whoever tries more
// often waits for its answer, right or wrong, up to maxFailureDelay.
const (
	failureInterval = time.Second
	maxFailureDelay = 10 * time.Second
	// maxFailing bounds the addresses that are remembered.
	maxFailing = 1 << 16
)

// throttle slows down who guesses. Each attempt counts as a failure until it has succeeded, so that many at once do not help.
// Safe for concurrent use. The zero value is ready.
type throttle struct {
	mu      sync.Mutex
	failing map[netip.Prefix]time.Time // when the address will be as if it had never failed
}

// take enters an attempt and returns how long its answer must wait, where burst failures at once are free; 0 means all are.
func (t *throttle) take(from netip.Addr, burst int, now time.Time) time.Duration {
	if !from.IsValid() || burst == 0 {
		return 0 // a unix socket: its file says who may try
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing == nil {
		t.failing = map[netip.Prefix]time.Time{}
	}
	if len(t.failing) >= maxFailing {
		t.forget(now)
	}
	network := networkOf(from)
	until := t.failing[network]
	if until.Before(now) {
		until = now
	}
	delay := until.Sub(now) - time.Duration(burst-1)*failureInterval
	if delay > maxFailureDelay { // it does not grow without bound
		return maxFailureDelay
	}
	t.failing[network] = until.Add(failureInterval)
	return max(0, delay)
}

// succeeded takes an attempt back.
func (t *throttle) succeeded(from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, ok := t.failing[networkOf(from)]; ok {
		t.failing[networkOf(from)] = until.Add(-failureInterval)
	}
}

// forget drops the addresses that are as if they had never failed, or all of them where that is not enough.
func (t *throttle) forget(now time.Time) {
	for network, until := range t.failing {
		if until.Before(now) {
			delete(t.failing, network)
		}
	}
	if len(t.failing) >= maxFailing {
		clear(t.failing)
	}
}

// networkOf is what one guesser may have: an address of IPv4, a /64 network of IPv6.
func networkOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(a.WithZone(""), bits).Masked()
}
