package spool

import "sync"

// notifier wakes whoever waits for the next change. A change costs nothing while nobody waits.
type notifier struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits; closed by notify
}

// wait returns a channel that the next notify closes. Take it before looking at what may have changed.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) notify() {
	n.mu.Lock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
	n.mu.Unlock()
}
