package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"walproxy/protocol"
)

// MaxLabelBytes bounds what ParseBackup reads. A manifest has some 150 bytes for each file of the backup.
const MaxLabelBytes = 1 << 30

var (
	startLocation = regexp.MustCompile(`(?m)^START WAL LOCATION: ([0-9A-Fa-f]+/[0-9A-Fa-f]+) \(file ([0-9A-F]{8})[0-9A-F]{16}\)`)
	startTimeline = regexp.MustCompile(`(?m)^START TIMELINE: ([0-9]+)`)
)

// ParseBackup returns where recovery from a base backup begins, from its backup_label, backup_manifest, or backup history file.
//
// Source: PostgreSQL src/backend/access/transam/xlogbackup.c, build_backup_content (15-18), the same text in xlog.c before;
// src/backend/backup/backup_manifest.c, AddWALInfoToBackupManifest (13-18).
func ParseBackup(content []byte) (protocol.Timeline, protocol.LSN, error) {
	if len(content) > 0 && content[0] == '{' {
		return parseManifest(content)
	}
	m := startLocation.FindSubmatch(content)
	if m == nil {
		return 0, 0, errors.New("this is neither a backup_label, nor a backup_manifest, nor a backup history file")
	}
	lsn, err := protocol.ParseLSN(string(m[1]))
	if err != nil {
		return 0, 0, err
	}
	tli, err := strconv.ParseUint(string(m[2]), 16, 32)
	if t := startTimeline.FindSubmatch(content); t != nil {
		tli, err = strconv.ParseUint(string(t[1]), 10, 32)
	}
	if err != nil || tli == 0 {
		return 0, 0, fmt.Errorf("timeline %d: %w", tli, err)
	}
	return protocol.Timeline(tli), lsn, nil
}

func parseManifest(content []byte) (protocol.Timeline, protocol.LSN, error) {
	var manifest struct {
		Ranges []struct {
			Timeline protocol.Timeline `json:"Timeline"`
			Start    string            `json:"Start-LSN"`
		} `json:"WAL-Ranges"`
	}
	if err := json.Unmarshal(content, &manifest); err != nil {
		return 0, 0, fmt.Errorf("backup manifest: %w", err)
	}
	var tli protocol.Timeline
	var oldest protocol.LSN
	for _, r := range manifest.Ranges {
		lsn, err := protocol.ParseLSN(r.Start)
		if err != nil {
			return 0, 0, fmt.Errorf("backup manifest: %w", err)
		}
		if tli == 0 || r.Timeline < tli {
			tli, oldest = r.Timeline, lsn
		}
	}
	if tli == 0 {
		return 0, 0, errors.New("the backup manifest names no WAL")
	}
	return tli, oldest, nil
}
