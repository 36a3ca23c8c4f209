package protocol

// Command is one command of the replication protocol, as ParseCommand reads it.
type Command interface {
	// Keyword is the command's first word, which is its CommandComplete tag too.
	Keyword() string
}

// The commands. Slot names are as the client means them (down-cased or quoted, cut to MaxNameBytes), not yet checked.
//
// Source: PostgreSQL src/backend/replication/repl_gram.y (13-18).
type (
	// IdentifySystem asks for system identifier, timeline and WAL position.
	IdentifySystem struct{}

	// Show asks for a setting, whose name is down-cased unless it was quoted; "all" asks for every one.
	Show struct{ Name string }

	// ReadTimelineHistory asks for a timeline's history file.
	ReadTimelineHistory struct{ Timeline Timeline }

	// StartReplication begins a physical stream.
	StartReplication struct {
		Slot     string // only if HasSlot
		HasSlot  bool
		Start    LSN
		Timeline Timeline // 0: the current one
	}

	// CreateReplicationSlot makes a physical slot.
	CreateReplicationSlot struct {
		Slot       string
		Temporary  bool
		ReserveWAL bool
	}

	// ReadReplicationSlot asks where a slot stands (15+).
	ReadReplicationSlot struct{ Slot string }

	// DropReplicationSlot removes a slot; with Wait it waits until nobody uses it.
	DropReplicationSlot struct {
		Slot string
		Wait bool
	}

	// AlterReplicationSlot changes a logical slot (17+). A physical one has nothing to change; options are not kept.
	AlterReplicationSlot struct{ Slot string }

	// BaseBackup asks for a copy of the data directory. Its options are not parsed: a node has no data directory.
	BaseBackup struct{}

	// UploadManifest precedes an incremental BaseBackup (17+).
	UploadManifest struct{}

	// Logical is a START_REPLICATION or CREATE_REPLICATION_SLOT for logical decoding; the rest of it is not parsed.
	Logical struct{ Command string }
)

// Keyword implements Command.
func (IdentifySystem) Keyword() string { return "IDENTIFY_SYSTEM" }

// Keyword implements Command.
func (Show) Keyword() string { return "SHOW" }

// Keyword implements Command.
func (ReadTimelineHistory) Keyword() string { return "TIMELINE_HISTORY" }

// Keyword implements Command.
func (StartReplication) Keyword() string { return "START_REPLICATION" }

// Keyword implements Command.
func (CreateReplicationSlot) Keyword() string { return "CREATE_REPLICATION_SLOT" }

// Keyword implements Command.
func (ReadReplicationSlot) Keyword() string { return "READ_REPLICATION_SLOT" }

// Keyword implements Command.
func (DropReplicationSlot) Keyword() string { return "DROP_REPLICATION_SLOT" }

// Keyword implements Command.
func (AlterReplicationSlot) Keyword() string { return "ALTER_REPLICATION_SLOT" }

// Keyword implements Command.
func (BaseBackup) Keyword() string { return "BASE_BACKUP" }

// Keyword implements Command.
func (UploadManifest) Keyword() string { return "UPLOAD_MANIFEST" }

// Keyword implements Command.
func (l Logical) Keyword() string { return l.Command }
