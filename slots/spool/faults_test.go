package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"walproxy/slots/fs/memfs"
)

// errOnce is what a disk says that fails once. To the model it is as good as a crash; what a failed fsync was to write is lost.
var errOnce = fmt.Errorf("%w: %w", errCrash, memfs.ErrLost)

// TestRandomFaults is TestRandomSteps on a disk on which single changes fail, after which the log goes on, or is opened again.
func TestRandomFaults(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rounds := *roundsFlag
	if testing.Short() { // the race detector's run
		rounds = min(rounds, 10)
	}
	for round := range rounds {
		t.Logf("round %d: go test -run %s -seed %d -rounds 1", round, t.Name(), seed+uint64(round))
		m := &model{t: t, rng: rand.New(rand.NewPCG(seed+uint64(round), 2)), disk: memfs.New(), mayReturn: true}
		m.open()
		for range 200 {
			if m.rng.IntN(5) == 0 {
				m.fault()
			} else {
				m.step()
			}
		}
		m.reopen(m.disk)
		_ = m.log.Close()
		if t.Failed() {
			return
		}
	}
}

// fault lets one of the next few changes to the disk fail, or one of those that an Open makes.
func (m *model) fault() {
	at := m.disk.Steps() + m.rng.IntN(12)
	m.disk.Inject(func(op memfs.Op) error {
		if op.Step == at {
			return errOnce
		}
		return nil
	})
	for m.disk.Steps() <= at {
		steps := m.disk.Steps()
		switch m.rng.IntN(8) {
		case 0, 1:
			m.sync()
		case 2:
			m.burst()
		case 3:
			m.seal()
		case 4:
			m.retain()
		case 5:
			m.endTimeline()
		case 6:
			m.openFaulty()
		default:
			m.append()
		}
		if m.disk.Steps() == steps && m.log.closedErr() == nil && m.failed() {
			break
		}
	}
	m.disk.Inject(nil)
	if m.failed() {
		m.reopen(m.disk.Kill())
	}
}

// failed reports whether the log accepts nothing more.
func (m *model) failed() bool {
	m.log.mu.Lock()
	defer m.log.mu.Unlock()
	return m.log.failed != nil
}

// openFaulty opens the log again after the death of the process; that may fail, and then succeeds.
func (m *model) openFaulty() {
	_ = m.log.Close()
	l, err := Open("data", Options{FS: m.disk, ResetDistance: distance})
	if errors.Is(err, errOnce) {
		l, err = Open("data", Options{FS: m.disk, ResetDistance: distance})
	}
	if err != nil {
		m.t.Fatalf("open: %v", err)
	}
	m.log = l
	if err := l.SetIdentity(identity); err != nil && !errors.Is(err, errOnce) {
		m.t.Fatal(err)
	}
	if !m.failed() {
		m.compare()
	}
}
