package walsender

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"walproxy/protocol"
)

// execute runs a command and appends its results, without the final CommandComplete, to the wire.
func (s *session) execute(ctx, shutdown context.Context, cmd protocol.Command) error {
	switch c := cmd.(type) {
	case protocol.IdentifySystem:
		return s.identifySystem()
	case protocol.Show:
		return s.show(c.Name)
	case protocol.ReadTimelineHistory:
		return s.timelineHistory(c.Timeline)
	case protocol.StartReplication:
		return s.startReplication(ctx, shutdown, c)
	case protocol.CreateReplicationSlot:
		return s.createSlot(c)
	case protocol.ReadReplicationSlot:
		return s.readSlot(c.Slot)
	case protocol.DropReplicationSlot:
		return s.dropSlot(ctx, shutdown, c)
	case protocol.AlterReplicationSlot:
		return s.alterSlot(c.Slot)
	}
	err := protocol.Errorf(protocol.CodeFeatureNotSupported, "%s is not supported by this node", cmd.Keyword())
	if _, logical := cmd.(protocol.Logical); logical {
		err.Message = "logical replication is not supported by walproxy"
	}
	err.Hint = "Connect to the primary."
	return err
}

func (s *session) identifySystem() error {
	tli, end := s.server.backend.Position()
	var database []byte
	if s.database != "" {
		database = []byte(s.database)
	}
	s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.IdentifySystemColumns(s.major))
	s.wire.out = protocol.AppendDataRow(s.wire.out, []byte(s.identity.SystemID.String()), decimal(tli), end.Append(nil), database)
	return nil
}

func decimal(tli protocol.Timeline) []byte { return strconv.AppendUint(nil, uint64(tli), 10) }

func (s *session) show(name string) error {
	if strings.EqualFold(name, "all") {
		s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.ShowAllColumns())
		for _, name := range s.settings.names() {
			canonical, value, _ := s.settings.show(name)
			s.wire.out = protocol.AppendDataRow(s.wire.out, []byte(canonical), []byte(value), []byte{})
		}
		return nil
	}
	canonical, value, known := s.settings.show(name)
	if live := s.roleSetting(name); live != "" {
		value = live
	}
	if !known {
		return protocol.Errorf(protocol.CodeUndefinedObject, "unrecognized configuration parameter \"%s\"", name)
	}
	s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.ShowColumns(canonical))
	s.wire.out = protocol.AppendDataRow(s.wire.out, []byte(value))
	return nil
}

// roleSetting returns what a setting that shows the upstream's role is now; "" for another one. What was reported of it stays
// until ready.
func (s *session) roleSetting(name string) string {
	name = strings.ToLower(name)
	if !slices.Contains(liveSettings, name) {
		return ""
	}
	identity, _ := s.server.backend.Identity()
	return identity.Settings[name]
}

func (s *session) timelineHistory(tli protocol.Timeline) error {
	// The description comes first even if there is no such file.
	s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.TimelineHistoryColumns(s.major))
	name := protocol.HistoryName(tli)
	content, known := s.server.backend.History(tli)
	if !known {
		return protocol.Errorf(protocol.CodeUndefinedFile, "could not open file \"pg_wal/%s\": No such file or directory", name)
	}
	if content == nil {
		content = []byte{}
	}
	s.wire.out = protocol.AppendDataRow(s.wire.out, []byte(name), content)
	return nil
}

func (s *session) createSlot(c protocol.CreateReplicationSlot) error {
	if err := protocol.CheckSlotName(c.Slot); err != nil {
		return err
	}
	options := SlotOptions{Temporary: c.Temporary, ReserveWAL: c.ReserveWAL}
	if err := s.server.slots.Create(c.Slot, s.pid, options); err != nil {
		return s.slotError(c.Slot, err)
	}
	s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.CreateReplicationSlotColumns())
	s.wire.out = protocol.AppendDataRow(s.wire.out, []byte(c.Slot), protocol.LSN(0).Append(nil), nil, nil)
	return nil
}

// readSlot answers with NULLs for a slot that does not exist or reserves nothing.
//
// Source: PostgreSQL src/backend/replication/walsender.c, ReadReplicationSlot (15-18).
func (s *session) readSlot(name string) error {
	var kind, lsn, tli []byte
	restart, err := s.server.slots.Read(name)
	switch {
	case err == nil:
		kind = []byte("physical")
		if restart != 0 {
			current, _ := s.server.backend.Position()
			history, err := s.history(current)
			if err != nil {
				return err
			}
			lsn, tli = restart.Append(nil), decimal(history.At(restart))
		}
	case !errors.Is(err, protocol.ErrSlotMissing):
		return s.slotError(name, err)
	}
	s.wire.out = protocol.AppendRowDescription(s.wire.out, protocol.ReadReplicationSlotColumns())
	s.wire.out = protocol.AppendDataRow(s.wire.out, kind, lsn, tli)
	return nil
}

// alterSlot refuses: nothing of a physical slot can be altered. It does not wait for the slot's holder to say so.
//
// Source: PostgreSQL src/backend/replication/slot.c, ReplicationSlotAlter (17-18).
func (s *session) alterSlot(name string) error {
	slot, err := s.server.slots.Acquire(name, s.pid)
	var busy *protocol.SlotInUseError
	switch {
	case err == nil:
		slot.Release()
	case !errors.As(err, &busy):
		return s.slotError(name, err)
	}
	return protocol.Errorf(protocol.CodeFeatureNotSupported, "cannot use ALTER_REPLICATION_SLOT with a physical replication slot")
}

func (s *session) dropSlot(ctx, shutdown context.Context, c protocol.DropReplicationSlot) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer after(shutdown, func() { cancel(errTerminated()) })()
	err := s.server.slots.Drop(ctx, c.Slot, s.pid, c.Wait)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.slotError(c.Slot, err)
}

// history returns the ancestry of a timeline; one without a history file has none.
func (s *session) history(tli protocol.Timeline) (protocol.History, error) {
	content, known := s.server.backend.History(tli)
	if !known {
		return protocol.History{Timeline: tli}, nil
	}
	return protocol.ParseHistory(tli, content)
}

// slotError turns an error of Slots into what the client sees.
//
// Source: PostgreSQL src/backend/replication/slot.c (13-18).
func (s *session) slotError(name string, err error) error {
	var busy *protocol.SlotInUseError
	var invalid *protocol.SlotInvalidatedError
	switch {
	case errors.Is(err, protocol.ErrSlotExists):
		return protocol.Errorf(protocol.CodeDuplicateObject, "replication slot \"%s\" already exists", name)
	case errors.Is(err, protocol.ErrSlotMissing):
		return protocol.Errorf(protocol.CodeUndefinedObject, "replication slot \"%s\" does not exist", name)
	case errors.Is(err, protocol.ErrSlotsFull):
		full := protocol.Errorf(protocol.CodeConfigLimitExceeded, "all replication slots are in use")
		full.Hint = "Free one or increase " + s.inMessages("max_replication_slots") + "."
		return full
	case errors.As(err, &busy):
		return protocol.Errorf(protocol.CodeObjectInUse, "replication slot \"%s\" is active for PID %d", name, busy.PID)
	case errors.As(err, &invalid):
		refusal := protocol.Errorf(protocol.CodeObjectNotInState, "can no longer access replication slot \"%s\"", name)
		refusal.Detail = "This replication slot has been invalidated due to \"" + invalid.Reason + "\"."
		return refusal
	}
	return err
}
