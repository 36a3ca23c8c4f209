package protocol_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"walproxy/protocol"
)

func TestParseCommand(t *testing.T) {
	long := strings.Repeat("a", 70)
	reserve := protocol.CreateReplicationSlot{Slot: "s", ReserveWAL: true}
	tests := []struct {
		text     string
		from, to int // major versions
		want     protocol.Command
	}{
		{"IDENTIFY_SYSTEM", 13, 18, protocol.IdentifySystem{}},
		{" \t\r\n\fIDENTIFY_SYSTEM ; ", 13, 18, protocol.IdentifySystem{}},
		{"SHOW wal_segment_size", 13, 18, protocol.Show{Name: "wal_segment_size"}},
		{"SHOW DateStyle", 13, 18, protocol.Show{Name: "datestyle"}},
		{`SHOW "DateStyle"`, 13, 18, protocol.Show{Name: "DateStyle"}},
		{"SHOW plpgsql.check", 13, 18, protocol.Show{Name: "plpgsql.check"}},
		{"TIMELINE_HISTORY 12", 13, 18, protocol.ReadTimelineHistory{Timeline: 12}},
		{"TIMELINE_HISTORY 4294967295", 13, 18, protocol.ReadTimelineHistory{Timeline: 1<<32 - 1}},
		{"START_REPLICATION 0/3000000", 13, 18, protocol.StartReplication{Start: 0x3000000}},
		{"START_REPLICATION A/b TIMELINE 3", 13, 18, protocol.StartReplication{Start: 0xA0000000B, Timeline: 3}},
		{`START_REPLICATION SLOT "My" PHYSICAL 16/B374D848 TIMELINE 3;`, 13, 18,
			protocol.StartReplication{Slot: "My", HasSlot: true, Start: 0x16B374D848, Timeline: 3}},
		{`START_REPLICATION SLOT "" 0/0`, 13, 18, protocol.StartReplication{HasSlot: true}},
		{"START_REPLICATION SLOT MySlot PHYSICAL 0/1", 13, 18, protocol.StartReplication{Slot: "myslot", HasSlot: true, Start: 1}},
		{"START_REPLICATION SLOT l LOGICAL 0/0 (proto_version '1')", 13, 18, protocol.Logical{Command: "START_REPLICATION"}},
		{"CREATE_REPLICATION_SLOT s PHYSICAL", 13, 18, protocol.CreateReplicationSlot{Slot: "s"}},
		{"CREATE_REPLICATION_SLOT s  PHYSICAL  ", 13, 18, protocol.CreateReplicationSlot{Slot: "s"}},
		{"CREATE_REPLICATION_SLOT s PHYSICAL RESERVE_WAL", 13, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL)", 15, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL ( RESERVE_WAL)", 15, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal 'on')", 15, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal TRUE)", 15, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal 1)", 15, 18, reserve},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL false)", 15, 18, protocol.CreateReplicationSlot{Slot: "s"}},
		{`CREATE_REPLICATION_SLOT "pg_walreceiver_7" TEMPORARY PHYSICAL (RESERVE_WAL)`, 15, 18,
			protocol.CreateReplicationSlot{Slot: "pg_walreceiver_7", Temporary: true, ReserveWAL: true}},
		{"CREATE_REPLICATION_SLOT s LOGICAL pgoutput", 13, 18, protocol.Logical{Command: "CREATE_REPLICATION_SLOT"}},
		{`CREATE_REPLICATION_SLOT "a""b" PHYSICAL`, 13, 18, protocol.CreateReplicationSlot{Slot: `a"b`}},
		{"CREATE_REPLICATION_SLOT " + long + " PHYSICAL", 13, 18, protocol.CreateReplicationSlot{Slot: long[:63]}},
		{"READ_REPLICATION_SLOT s", 15, 18, protocol.ReadReplicationSlot{Slot: "s"}},
		{"DROP_REPLICATION_SLOT s", 13, 18, protocol.DropReplicationSlot{Slot: "s"}},
		{"DROP_REPLICATION_SLOT s WAIT;", 13, 18, protocol.DropReplicationSlot{Slot: "s", Wait: true}},
		{"DROP_REPLICATION_SLOT label", 13, 18, protocol.DropReplicationSlot{Slot: "label"}},
		{"ALTER_REPLICATION_SLOT s (failover true)", 17, 18, protocol.AlterReplicationSlot{Slot: "s"}},
		{"UPLOAD_MANIFEST", 17, 18, protocol.UploadManifest{}},
		{"BASE_BACKUP LABEL 'x' FAST", 13, 14, protocol.BaseBackup{}},
		{"BASE_BACKUP ( LABEL 'pg_basebackup base backup',  PROGRESS)", 15, 18, protocol.BaseBackup{}},
	}
	for _, test := range tests {
		for major := test.from; major <= test.to; major++ {
			got, notices, err := protocol.ParseCommand(test.text, major)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%d: %q: got %#v, %v, want %#v", major, test.text, got, err, test.want)
			}
			if cut := strings.Contains(test.text, long); cut != (len(notices) == 1) {
				t.Errorf("%d: %q: notices %v", major, test.text, notices)
			} else if cut && (notices[0].Severity != "NOTICE" || notices[0].Code != "42622") {
				t.Errorf("%d: %q: notice %v", major, test.text, notices[0])
			}
		}
	}
}

func TestParseCommandErrors(t *testing.T) {
	const sql, syntax = "0A000", "42601"
	tests := []struct {
		text     string
		from, to int
		code     string
	}{
		{"", 13, 18, sql},
		{"  ;", 13, 18, sql},
		{"identify_system", 13, 18, sql},
		{"Show wal_segment_size", 13, 18, sql},
		{"SELECT 1", 13, 18, sql},
		{"-- IDENTIFY_SYSTEM", 13, 18, sql},
		{"IDENTIFY_SYSTEMS", 13, 18, sql},
		{`"IDENTIFY_SYSTEM"`, 13, 18, sql},
		{"READ_REPLICATION_SLOT s", 13, 14, sql},
		{"ALTER_REPLICATION_SLOT s (failover)", 13, 16, sql},
		{"UPLOAD_MANIFEST", 13, 16, sql},
		{"PHYSICAL", 13, 18, sql},
		{"IDENTIFY_SYSTEM; IDENTIFY_SYSTEM", 13, 18, syntax},
		{"IDENTIFY_SYSTEM;;", 13, 18, syntax},
		{"IDENTIFY_SYSTEM -- why", 13, 18, syntax},
		{"SHOW", 13, 18, syntax},
		{"SHOW 'x'", 13, 18, syntax},
		{"SHOW a.", 13, 18, syntax},
		{"SHOW a.b.c", 13, 18, syntax},
		{"TIMELINE_HISTORY 0", 13, 18, syntax},
		{"TIMELINE_HISTORY 4294967296", 13, 18, syntax},
		{"TIMELINE_HISTORY -1", 13, 18, syntax},
		{"TIMELINE_HISTORY x", 13, 18, syntax},
		{"START_REPLICATION", 13, 18, syntax},
		{"START_REPLICATION 0/0 TIMELINE", 13, 18, syntax},
		{"START_REPLICATION 0/0 TIMELINE 0", 13, 18, syntax},
		{"START_REPLICATION 100000000/0", 13, 18, syntax}, // a stock server takes it for 0/0
		{"START_REPLICATION SLOT 0/0", 13, 18, syntax},
		{"START_REPLICATION 0 / 0", 13, 18, syntax},
		{`START_REPLICATION SLOT "x PHYSICAL 0/0`, 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT s", 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT PHYSICAL PHYSICAL", 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT 's' PHYSICAL", 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL)", 13, 14, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL ()", 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (RESERVE_WAL", 15, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal 2)", 15, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal maybe)", 15, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (reserve_wal, reserve_wal)", 15, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (snapshot 'export')", 15, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL EXPORT_SNAPSHOT", 13, 18, syntax},
		{"CREATE_REPLICATION_SLOT s PHYSICAL (nonsense)", 15, 18, "XX000"},
		{"DROP_REPLICATION_SLOT", 13, 18, syntax},
		{"DROP_REPLICATION_SLOT WAIT", 13, 18, syntax},
		{"DROP_REPLICATION_SLOT LABEL", 13, 14, syntax},
		{"ALTER_REPLICATION_SLOT s", 17, 18, syntax},
		{"UPLOAD_MANIFEST x", 17, 18, syntax},
	}
	for _, test := range tests {
		for major := test.from; major <= test.to; major++ {
			_, _, err := protocol.ParseCommand(test.text, major)
			var e *protocol.Error
			if !errors.As(err, &e) || e.Code != test.code || e.Severity != "ERROR" {
				t.Errorf("%d: %q: got %v, want SQLSTATE %s", major, test.text, err, test.code)
			}
		}
	}
}

func FuzzParseCommand(f *testing.F) {
	for _, seed := range []string{
		"", "IDENTIFY_SYSTEM;", `START_REPLICATION SLOT "a""b" PHYSICAL 1/2 TIMELINE 3`, "SHOW a.b", "\x00\xff", "SHOW \"",
		"CREATE_REPLICATION_SLOT s TEMPORARY PHYSICAL (RESERVE_WAL 'on', x 1)", "BASE_BACKUP (", "TIMELINE_HISTORY 99999999999",
	} {
		f.Add(seed, 15)
	}
	f.Fuzz(func(t *testing.T, text string, major int) {
		cmd, _, err := protocol.ParseCommand(text, major)
		if err != nil {
			var e *protocol.Error
			if !errors.As(err, &e) || len(e.Code) != 5 {
				t.Fatalf("%q: error without SQLSTATE: %v", text, err)
			}
			return
		}
		if !strings.Contains(text, cmd.Keyword()) {
			t.Fatalf("%q became %s", text, cmd.Keyword())
		}
	})
}

func TestCheckSlotName(t *testing.T) {
	for name, code := range map[string]string{
		"a": "", "standby_1": "", "_": "", strings.Repeat("a", 63): "", "": "42602", "A": "42602", "a-b": "42602", "a b": "42602",
		"ä": "42602", strings.Repeat("a", 64): "42622",
	} {
		err := protocol.CheckSlotName(name)
		var e *protocol.Error
		if errors.As(err, &e) != (code != "") || e != nil && e.Code != code {
			t.Errorf("%q: %v, want SQLSTATE %q", name, err, code)
		}
	}
}
