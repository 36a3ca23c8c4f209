// Package notify wakes goroutines that wait for something to change.
package notify

import "sync"

// Notifier wakes whoever waits for the next change. A change costs no allocation, and next to nothing while nobody waits. The
// zero value is ready to use; it is safe for concurrent use.
type Notifier struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits; closed by Notify
}

// Wait returns a channel that the next Notify closes. Take it before looking at what may have changed.
func (n *Notifier) Wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

// Notify says that something has changed.
func (n *Notifier) Notify() {
	n.mu.Lock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
	n.mu.Unlock()
}
