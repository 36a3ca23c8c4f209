package protocol

// OIDs of the types in the result sets of replication commands.
//
// Source: PostgreSQL src/include/catalog/pg_type.dat (13-18).
const (
	oidBytea = 17
	oidInt8  = 20
	oidInt4  = 23
	oidText  = 25
)

// Column describes a column of a result set; values travel as text.
type Column struct {
	Name    string
	OID     uint32
	TypeLen int16 // bytes; -1 varies
	TypeMod int32
}

func textColumn(name string) Column {
	return Column{Name: name, OID: oidText, TypeLen: -1, TypeMod: -1}
}
func int8Column(name string) Column { return Column{Name: name, OID: oidInt8, TypeLen: 8, TypeMod: -1} }

// IdentifySystemColumns returns the columns of IDENTIFY_SYSTEM; the timeline became an int8 in version 16.
//
// Source of all result sets: PostgreSQL src/backend/replication/walsender.c (13-18), and the wire.
func IdentifySystemColumns(major int) []Column {
	timeline := int8Column("timeline")
	if major < 16 {
		timeline.OID, timeline.TypeLen = oidInt4, 4
	}
	return []Column{textColumn("systemid"), timeline, textColumn("xlogpos"), textColumn("dbname")}
}

// ShowColumns returns the one column of SHOW; name is the setting's canonical spelling.
func ShowColumns(name string) []Column { return []Column{textColumn(name)} }

// ShowAllColumns returns the columns of SHOW all.
func ShowAllColumns() []Column {
	return []Column{textColumn("name"), textColumn("setting"), textColumn("description")}
}

// TimelineHistoryColumns returns the columns of TIMELINE_HISTORY; the content was a bytea in version 13.
func TimelineHistoryColumns(major int) []Column {
	columns := []Column{textColumn("filename"), textColumn("content")}
	if major < 14 {
		columns[1].OID = oidBytea
	}
	if major < 16 {
		columns[0].TypeMod, columns[1].TypeMod = 0, 0
	}
	return columns
}

// ReadReplicationSlotColumns returns the columns of READ_REPLICATION_SLOT.
func ReadReplicationSlotColumns() []Column {
	return []Column{textColumn("slot_type"), textColumn("restart_lsn"), int8Column("restart_tli")}
}

// CreateReplicationSlotColumns returns the columns of CREATE_REPLICATION_SLOT.
func CreateReplicationSlotColumns() []Column {
	return []Column{textColumn("slot_name"), textColumn("consistent_point"), textColumn("snapshot_name"), textColumn("output_plugin")}
}

// NextTimelineColumns returns the columns of what ends the stream of a timeline that has ended.
func NextTimelineColumns() []Column {
	return []Column{int8Column("next_tli"), textColumn("next_tli_startpos")}
}

// AppendRowDescription appends a RowDescription message to dst and returns the extended buffer.
func AppendRowDescription(dst []byte, columns []Column) []byte {
	dst, at := beginMessage(dst, 'T')
	dst = be.AppendUint16(dst, uint16(len(columns)))
	for _, c := range columns {
		dst = append(append(dst, c.Name...), 0)
		dst = append(dst, 0, 0, 0, 0, 0, 0) // no table, no attribute
		dst = be.AppendUint32(dst, c.OID)
		dst = be.AppendUint16(dst, uint16(c.TypeLen))
		dst = be.AppendUint32(dst, uint32(c.TypeMod))
		dst = append(dst, 0, 0) // text
	}
	return endMessage(dst, at)
}

// AppendDataRow appends a DataRow message to dst and returns the extended buffer. A nil value is NULL, an empty one is not.
func AppendDataRow(dst []byte, values ...[]byte) []byte {
	dst, at := beginMessage(dst, 'D')
	dst = be.AppendUint16(dst, uint16(len(values)))
	for _, v := range values {
		if v == nil {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		dst = be.AppendUint32(dst, uint32(len(v)))
		dst = append(dst, v...)
	}
	return endMessage(dst, at)
}

// AppendCommandComplete appends a CommandComplete message to dst and returns the extended buffer.
func AppendCommandComplete(dst []byte, tag string) []byte {
	dst, at := beginMessage(dst, 'C')
	return endMessage(append(append(dst, tag...), 0), at)
}

func beginMessage(dst []byte, kind byte) ([]byte, int) {
	return append(dst, kind, 0, 0, 0, 0), len(dst) + 1
}

// endMessage fills in the length, which counts itself but not the kind.
func endMessage(dst []byte, at int) []byte {
	be.PutUint32(dst[at:], uint32(len(dst)-at))
	return dst
}
