package memfs

import (
	"bytes"
	"maps"
	"math/rand/v2"
)

// sectorBytes is what a disk writes as a whole or not at all.
const sectorBytes = 512

// Kill returns a copy as the next process finds it when this one dies: everything is there, synced or not as before; locks
// are gone.
func (m *FS) Kill() *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &copier{seen: map[node]node{}}
	return &FS{root: c.dir(m.root), locked: map[string]bool{}}
}

// Crash returns a copy as it may be found after a loss of power now. What was synced is there. Of the changes to directories
// that were not, each happened or did not. Of a file, each sector has its content of the last sync or of now (zeros where it
// had none), and the length lies anywhere between the two. rng decides.
func (m *FS) Crash(rng *rand.Rand) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Whole crashes lean one way or the other, so that nothing, little and almost everything was kept come up often.
	chance := []float64{0, 0.1, 0.5, 0.9, 1}[rng.IntN(5)]
	c := &copier{seen: map[node]node{}, keep: func() bool { return rng.Float64() < chance }, rng: rng}
	return &FS{root: c.dir(m.root), locked: map[string]bool{}}
}

// copier makes the tree that is left; a node with several names stays one node.
type copier struct {
	seen map[node]node
	keep func() bool // whether a change that was not synced happened
	rng  *rand.Rand  // nil: copy everything as it is
}

func (c *copier) dir(d *dir) *dir {
	if c.rng == nil {
		return c.sameDir(d)
	}
	entries := maps.Clone(d.durable)
	for _, change := range d.pending {
		if c.keep() {
			change.apply(entries)
		}
	}
	left := newDir()
	for name, n := range entries {
		left.now[name] = c.node(n)
	}
	left.durable = maps.Clone(left.now)
	return left
}

func (c *copier) sameDir(d *dir) *dir {
	same := newDir()
	for name, n := range d.now {
		same.now[name] = c.node(n)
	}
	for name, n := range d.durable {
		same.durable[name] = c.node(n)
	}
	for _, change := range d.pending {
		if change.node != nil {
			change.node = c.node(change.node)
		}
		same.pending = append(same.pending, change)
	}
	return same
}

func (c *copier) node(n node) node {
	if left, ok := c.seen[n]; ok {
		return left
	}
	var left node
	switch n := n.(type) {
	case *dir:
		left = c.dir(n)
	case *inode:
		if c.rng == nil {
			left = &inode{now: bytes.Clone(n.now), durable: bytes.Clone(n.durable), lost: maps.Clone(n.lost)}
			break
		}
		content := c.content(n)
		left = &inode{now: content, durable: bytes.Clone(content)}
	}
	c.seen[n] = left
	return left
}

func (c *copier) content(f *inode) []byte {
	if bytes.Equal(f.now, f.durable) {
		return bytes.Clone(f.now)
	}
	low, high := min(len(f.now), len(f.durable)), max(len(f.now), len(f.durable))
	left := make([]byte, high)
	for at := 0; at < high; at += sectorBytes {
		from := f.durable
		if c.keep() && !f.lost[at/pageBytes] {
			from = f.now
		}
		if at < len(from) {
			copy(left[at:min(at+sectorBytes, high)], from[at:])
		}
	}
	switch c.rng.IntN(3) {
	case 0:
		return left[:len(f.now)]
	case 1:
		return left[:len(f.durable)]
	}
	return left[:low+c.rng.IntN(high-low+1)]
}
