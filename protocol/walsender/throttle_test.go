package walsender

import (
	"net/netip"
	"testing"
	"time"
)

// TestThrottle: who fails often waits; who succeeds does not, others neither; neighbours in a /64 count as one.
func TestThrottle(t *testing.T) {
	const failureBurst = 10
	var th throttle
	now := time.Unix(1e9, 0)
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range failureBurst {
		if d := th.take(a, failureBurst, now); d != 0 {
			t.Fatalf("failure %d waits %s", i, d)
		}
	}
	if d := th.take(a, failureBurst, now); d != failureInterval {
		t.Errorf("one failure too many waits %s", d)
	}
	if d := th.take(b, failureBurst, now); d != 0 {
		t.Errorf("another address waits %s", d)
	}
	for range 1000 {
		if d := th.take(a, failureBurst, now); d > maxFailureDelay {
			t.Fatalf("waits %s", d)
		}
	}
	if d := th.take(a, failureBurst, now.Add(time.Minute)); d != 0 {
		t.Errorf("a minute later it waits %s", d)
	}
	for range 1000 { // a standby that reconnects
		if d := th.take(b, failureBurst, now); d != 0 {
			t.Fatalf("who succeeds waits %s", d)
		}
		th.succeeded(b)
	}
	for i := range failureBurst + 1 {
		if d := th.take(netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), failureBurst, now); i == failureBurst && d == 0 {
			t.Error("neighbours of one network do not wait")
		}
	}
	if th.take(a, 0, now) != 0 {
		t.Error("it waits although nobody has to")
	}
	if th.take(netip.Addr{}, failureBurst, now) != 0 {
		t.Error("a unix socket waits")
	}
	for i := range 2 * maxFailing {
		th.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), failureBurst, now)
	}
	if len(th.failing) > maxFailing {
		t.Errorf("%d addresses are remembered", len(th.failing))
	}
}
