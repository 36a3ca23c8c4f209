package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"walproxy/protocol"
	"walproxy/slots/fs"
	"walproxy/slots/notify"
	"walproxy/slots/statefile"
)

// Defaults of a store.
const (
	DefaultMaxSlots     = 256
	DefaultSaveInterval = 5 * time.Second
)

// StoreOptions of a store. The zero value is ready to use.
type StoreOptions struct {
	FS           fs.FS         // nil: the operating system's
	Logger       *zap.Logger   // nil: silent
	Metrics      *Metrics      // nil: none
	Max          int           // slots, temporary ones included; 0: DefaultMaxSlots
	SaveInterval time.Duration // how old a saved restart_lsn may be; 0: DefaultSaveInterval
}

// Store holds the physical replication slots of a node: the persistent ones in the file <data>/slots, temporary ones in
// memory. Creating and dropping is durable on return. A new restart_lsn counts at once and is saved by Run or Flush, so an
// advance costs no fsync; HoldsFrom keeps WAL from the saved value on, so that after a crash no slot claims WAL that is gone.
// Safe for concurrent use.
type Store struct {
	fs       fs.FS
	logger   *zap.Logger
	metrics  *Metrics
	file     string
	max      int
	interval time.Duration

	saveMu   sync.Mutex // one writer of the file at a time; taken before mu
	reserved int64      // bytes of the reserve file; guarded by saveMu

	mu    sync.Mutex
	slots map[string]*Slot
	dirty bool // a persistent slot differs from the file

	changed notify.Notifier
}

// OpenStore reads the slots of the data directory dir, which exists. The caller holds the lock of the data directory (spool.Open).
//
// Errors: *CorruptError; *statefile.VersionError for the file of a newer walproxy.
func OpenStore(dir string, options StoreOptions) (*Store, error) {
	s := &Store{fs: options.FS, logger: options.Logger, metrics: options.Metrics, file: path.Join(dir, "slots"), max: options.Max,
		interval: options.SaveInterval, slots: map[string]*Slot{}}
	if s.fs == nil {
		s.fs = fs.OS{}
	}
	if s.logger == nil {
		s.logger = zap.NewNop()
	}
	s.logger = s.logger.Named("slots")
	s.max = cmp.Or(s.max, DefaultMaxSlots)
	s.interval = cmp.Or(s.interval, DefaultSaveInterval)
	if err := s.fs.Remove(s.file + fs.TempSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove leftover: %w", err)
	}
	s.findReserve()
	content, err := fs.ReadFile(s.fs, s.file, statefile.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open slots: %w", err)
	}
	slots, err := decodeStore(content)
	if errors.Is(err, statefile.ErrCorrupt) {
		return nil, &CorruptError{File: s.file, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open slots %s: %w", s.file, err)
	}
	for _, slot := range slots {
		s.slots[slot.Name] = &slot
	}
	return s, nil
}

// Run saves changed positions at the save interval until ctx is done, and once more then.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.Flush()
		case <-ticker.C:
			if err := s.Flush(); err != nil {
				s.logger.Error("save slots; WAL is kept from the positions saved last", zap.Error(err))
			}
		}
	}
}

// Flush saves the slots if a position has changed since they were saved last.
func (s *Store) Flush() error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.mu.Unlock()
	if !dirty {
		return nil
	}
	return s.save(func(slots []Slot) []Slot { return slots })
}

// save writes what edit makes of the slots to the file. saveMu is held. Until that has succeeded either of the two positions
// may be found after a crash, so the lower one is held.
func (s *Store) save(edit func([]Slot) []Slot) error {
	s.mu.Lock()
	slots := edit(s.list())
	s.dirty = false // what changes from here on is not in slots
	for _, saving := range slots {
		slot := s.slots[saving.Name]
		if !slot.Temporary && saving.RestartLSN != 0 && (slot.SavedLSN == 0 || slot.SavedLSN > saving.RestartLSN) {
			slot.SavedLSN = saving.RestartLSN
		}
	}
	s.mu.Unlock()
	content, err := encodeStore(slots)
	if err == nil {
		err = s.write(content)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dirty = true
		return fmt.Errorf("save slots: %w", err)
	}
	for _, saved := range slots {
		if slot := s.slots[saved.Name]; slot != nil && !slot.Temporary {
			slot.SavedLSN = saved.RestartLSN
		}
	}
	s.changed.Notify()
	return nil
}

// Changed returns a channel that is closed when a slot comes, goes or moves. Take it before looking.
func (s *Store) Changed() <-chan struct{} { return s.changed.Wait() }

// Get returns a slot.
func (s *Store) Get(name string) (Slot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := s.slots[name]; slot != nil {
		return *slot, true
	}
	return Slot{}, false
}

// List returns all slots in the order of their names.
func (s *Store) List() []Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

// list does List's work. s.mu is held.
func (s *Store) list() []Slot {
	list := make([]Slot, 0, len(s.slots))
	for _, slot := range s.slots {
		list = append(list, *slot)
	}
	slices.SortFunc(list, func(a, b Slot) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Create makes a slot; restart 0 reserves no WAL yet. A temporary slot is held by the session pid and dies with it
// (DropTemporary). It is durable on return.
//
// Errors: a *protocol.Error for the name, protocol.ErrSlotExists, protocol.ErrSlotsFull, or an error of the file system, after which the slot does not exist here.
func (s *Store) Create(name string, temporary bool, restart protocol.LSN, pid int32) error {
	if err := protocol.CheckSlotName(name); err != nil {
		return err
	}
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	slot := &Slot{Name: name, Temporary: temporary, RestartLSN: restart, PID: pid} // no other session gets it before it is durable
	s.mu.Lock()
	var err error
	switch {
	case s.slots[name] != nil:
		err = fmt.Errorf("create slot %q: %w", name, protocol.ErrSlotExists)
	case len(s.slots) >= s.max:
		err = fmt.Errorf("create slot %q: %w", name, protocol.ErrSlotsFull)
	default:
		s.slots[name] = slot // from now on WAL is kept for it
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if !temporary {
		if err := s.save(func(slots []Slot) []Slot { return slots }); err != nil {
			s.remove(name)
			return fmt.Errorf("create slot %q: %w", name, err)
		}
		s.Release(name, pid)
	}
	s.changed.Notify()
	return nil
}

func (s *Store) remove(name string) {
	s.mu.Lock()
	delete(s.slots, name)
	s.mu.Unlock()
}

// Drop removes a slot; that is durable on return. Only the session pid may drop a slot that it holds; pid 0 is nobody's. Meanwhile
// pid holds the slot, so that no other session gets it.
//
// Errors: protocol.ErrSlotMissing, *protocol.SlotInUseError, or an error of the file system, after which the slot still exists.
//
// Source: PostgreSQL src/backend/replication/slot.c, ReplicationSlotDrop (13-18).
func (s *Store) Drop(name string, pid int32) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	slot, err := s.hold(name, pid)
	if err != nil {
		return fmt.Errorf("drop slot: %w", err)
	}
	if !slot.Temporary {
		without := func(all []Slot) []Slot {
			return slices.DeleteFunc(all, func(other Slot) bool { return other.Name == name })
		}
		if err := s.save(without); err != nil {
			if !slot.Active() {
				s.Release(name, pid)
			}
			return fmt.Errorf("drop slot %q: %w", name, err)
		}
	}
	s.remove(name)
	s.changed.Notify()
	return nil
}

// hold gives a slot to the session pid, and returns it as it was, unless it is missing or another session holds it.
func (s *Store) hold(name string, pid int32) (Slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.slots[name]
	switch {
	case slot == nil:
		return Slot{}, fmt.Errorf("slot %q: %w", name, protocol.ErrSlotMissing)
	case slot.PID != 0 && slot.PID != pid:
		return Slot{}, &protocol.SlotInUseError{Name: name, PID: slot.PID}
	}
	before := *slot
	slot.PID = pid
	return before, nil
}
