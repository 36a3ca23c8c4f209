package node

import "sync"

// broadcast wakes everybody who waits. The zero value is ready; safe for concurrent use.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // closed by the next send; nil while nobody waits
}

// wait returns a channel that is closed by the next send.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
