package protocol_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

func TestColumns(t *testing.T) {
	type column struct {
		name string
		oid  uint32
		len  int16
		mod  int32
	}
	text := func(name string) column { return column{name, 25, -1, -1} }
	tests := map[string]struct {
		got  []protocol.Column
		want []column
	}{
		"IDENTIFY_SYSTEM 15":  {protocol.IdentifySystemColumns(15), []column{text("systemid"), {"timeline", 23, 4, -1}, text("xlogpos"), text("dbname")}},
		"IDENTIFY_SYSTEM 16":  {protocol.IdentifySystemColumns(16), []column{text("systemid"), {"timeline", 20, 8, -1}, text("xlogpos"), text("dbname")}},
		"TIMELINE_HISTORY 13": {protocol.TimelineHistoryColumns(13), []column{{"filename", 25, -1, 0}, {"content", 17, -1, 0}}},
		"TIMELINE_HISTORY 15": {protocol.TimelineHistoryColumns(15), []column{{"filename", 25, -1, 0}, {"content", 25, -1, 0}}},
		"TIMELINE_HISTORY 16": {protocol.TimelineHistoryColumns(16), []column{text("filename"), text("content")}},
		"READ":                {protocol.ReadReplicationSlotColumns(), []column{text("slot_type"), text("restart_lsn"), {"restart_tli", 20, 8, -1}}},
		"NEXT":                {protocol.NextTimelineColumns(), []column{{"next_tli", 20, 8, -1}, text("next_tli_startpos")}},
		"SHOW":                {protocol.ShowColumns("TimeZone"), []column{text("TimeZone")}},
	}
	for name, test := range tests {
		var d pgproto3.RowDescription
		message := protocol.AppendRowDescription(nil, test.got)
		if err := d.Decode(body(t, message, 'T')); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(d.Fields) != len(test.want) {
			t.Fatalf("%s: %d columns, want %d", name, len(d.Fields), len(test.want))
		}
		for i, f := range d.Fields {
			if got := (column{string(f.Name), f.DataTypeOID, f.DataTypeSize, f.TypeModifier}); got != test.want[i] {
				t.Errorf("%s: got %+v, want %+v", name, got, test.want[i])
			}
			if f.TableOID != 0 || f.TableAttributeNumber != 0 || f.Format != 0 {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

func TestDataRowAndTag(t *testing.T) {
	message := protocol.AppendDataRow([]byte("before"), []byte("abc"), nil, []byte{})
	var row pgproto3.DataRow
	if err := row.Decode(body(t, message[len("before"):], 'D')); err != nil {
		t.Fatal(err)
	}
	if len(row.Values) != 3 || string(row.Values[0]) != "abc" || row.Values[1] != nil || row.Values[2] == nil || len(row.Values[2]) != 0 {
		t.Errorf("got %q", row.Values)
	}
	var tag pgproto3.CommandComplete
	if err := tag.Decode(body(t, protocol.AppendCommandComplete(nil, "SHOW"), 'C')); err != nil || string(tag.CommandTag) != "SHOW" {
		t.Errorf("got %q, %v", tag.CommandTag, err)
	}
}

// body checks kind and length of a message and returns what follows them.
func body(t *testing.T, message []byte, kind byte) []byte {
	t.Helper()
	if len(message) < 5 || message[0] != kind || int(message[3])<<8|int(message[4]) != len(message)-1 {
		t.Fatalf("bad message %q", message)
	}
	return message[5:]
}
