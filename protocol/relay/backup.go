package relay

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// BackupStart is where a base backup begins: recovery of it needs WAL from LSN on.
type BackupStart struct {
	Timeline protocol.Timeline
	LSN      protocol.LSN
}

// ParseBackupStart reads the row of the first result set of BASE_BACKUP; body is that of the DataRow.
//
// Source: PostgreSQL src/backend/backup/basebackup_copy.c, SendXlogRecPtrResult (15-18); replication/basebackup.c (13-14).
func ParseBackupStart(body []byte) (BackupStart, error) {
	var row pgproto3.DataRow
	if err := row.Decode(body); err != nil {
		return BackupStart{}, fmt.Errorf("%w: start of base backup: %w", ErrMessage, err)
	}
	if len(row.Values) < 2 {
		return BackupStart{}, fmt.Errorf("%w: start of base backup has %d columns", ErrMessage, len(row.Values))
	}
	lsn, err := protocol.ParseLSN(string(row.Values[0]))
	if err != nil {
		return BackupStart{}, fmt.Errorf("%w: start of base backup: %w", ErrMessage, err)
	}
	tli, err := protocol.ParseTimeline(string(row.Values[1]))
	if err != nil {
		return BackupStart{}, fmt.Errorf("%w: start of base backup: %w", ErrMessage, err)
	}
	return BackupStart{Timeline: tli, LSN: lsn}, nil
}
