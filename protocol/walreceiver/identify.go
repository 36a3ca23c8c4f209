package walreceiver

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"walproxy/protocol"
)

// position is what IDENTIFY_SYSTEM says.
type position struct {
	systemID protocol.SystemID
	timeline protocol.Timeline
	end      protocol.LSN
}

const identifySystem = "IDENTIFY_SYSTEM"

// parseIdentify reads the row of IDENTIFY_SYSTEM: system identifier, timeline, LSN; more columns are left alone.
//
// Source: PostgreSQL src/backend/replication/walsender.c, IdentifySystem (13-18).
func parseIdentify(row [][]byte) (position, error) {
	id, err := strconv.ParseUint(string(row[0]), 10, 64)
	if err != nil {
		return position{}, fmt.Errorf("parse system identifier %q: %w", row[0], err)
	}
	tli, err := protocol.ParseTimeline(string(row[1]))
	if err != nil {
		return position{}, err
	}
	end, err := protocol.ParseLSN(string(row[2]))
	if err != nil {
		return position{}, err
	}
	return position{systemID: protocol.SystemID(id), timeline: tli, end: end}, nil
}

// upstream is what is known of a server after identify.
type upstream struct {
	position
	identity      protocol.Identity
	senderTimeout time.Duration // wal_sender_timeout; 0 if off or unknown
}

// identify asks a server who it is, in one round trip. Settings that it refuses to show are left out.
func (c *wire) identify(within time.Duration, serverVersion string) (upstream, error) {
	commands := []string{identifySystem, "SHOW wal_sender_timeout"}
	first := len(commands)
	for _, name := range protocol.ShownSettings {
		commands = append(commands, "SHOW "+name)
	}
	results, err := c.exec(within, commands...)
	if err != nil {
		return upstream{}, err
	}
	row, err := results[0].one(3)
	if err != nil {
		return upstream{}, fmt.Errorf("identify upstream %s: %w", c.peer, err)
	}
	var u upstream
	if u.position, err = parseIdentify(row); err != nil {
		return upstream{}, fmt.Errorf("identify upstream %s: %w", c.peer, err)
	}
	if row, err := results[1].one(1); err == nil {
		u.senderTimeout = parseDuration(string(row[0]))
	}
	u.identity = protocol.Identity{SystemID: u.systemID, ServerVersion: serverVersion, Settings: map[string]string{}}
	for i, name := range protocol.ShownSettings {
		if row, err := results[first+i].one(1); err == nil {
			u.identity.Settings[name] = string(row[0])
		}
	}
	return u, u.sizes(c.peer)
}

// sizes fills in the sizes that the identity states as numbers.
func (u *upstream) sizes(peer string) error {
	segment, block := u.identity.Settings["wal_segment_size"], u.identity.Settings["wal_block_size"]
	bytes := parseBytes(segment)
	if !protocol.ValidSegmentSize(bytes) {
		return fmt.Errorf("identify upstream %s: wal_segment_size %q is not a segment size", peer, segment)
	}
	page := parseBytes(block)
	if page < 1024 || page > 64<<10 || page&(page-1) != 0 {
		return fmt.Errorf("identify upstream %s: wal_block_size %q is not a WAL block size", peer, block)
	}
	u.identity.SegmentSize, u.identity.WALBlockSize = uint32(bytes), uint32(page)
	return nil
}

// parseBytes reads a size as SHOW prints it: "16MB", "8192". 0 means that it is none.
//
// Source: PostgreSQL src/backend/utils/misc/guc.c, memory_unit_conversion_table (13-18).
func parseBytes(text string) uint64 {
	number, unit := splitUnit(text)
	scale := map[string]uint64{"": 1, "B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}[unit]
	if number > 1<<20 {
		return 0
	}
	return number * scale
}

// parseDuration reads a time as SHOW prints it, in milliseconds if there is no unit. 0 means off, or that it is none.
//
// Source: PostgreSQL src/backend/utils/misc/guc.c, time_unit_conversion_table (13-18).
func parseDuration(text string) time.Duration {
	number, unit := splitUnit(text)
	scale := map[string]time.Duration{
		"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second,
		"min": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}[unit]
	if number > 1<<31 || scale > 0 && number > uint64(100*365*24*time.Hour/scale) {
		return 0
	}
	return time.Duration(number) * scale
}

func splitUnit(text string) (number uint64, unit string) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	number, err := strconv.ParseUint(text[:digits], 10, 64)
	if err != nil {
		return 0, text
	}
	return number, text[digits:]
}
