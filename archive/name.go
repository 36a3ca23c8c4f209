package archive

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"walproxy/protocol"
)

// Names of objects; FORMAT.md describes them.
const (
	identityName = "identity"
	walPrefix    = "wal/"
	walSuffix    = ".wal"
	filePrefix   = "file/"
)

// ValidName reports whether an object can have this name: slash-separated elements of ASCII letters, digits, '.', '-' and '_',
// none of which begins with a dot.
func ValidName(name string) bool {
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element[0] == '.' || strings.Trim(element, nameBytes) != "" {
			return false
		}
	}
	return len(name) <= maxNameBytes
}

const (
	nameBytes    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"
	maxNameBytes = 512 // a key in a bucket has up to 1024, with the prefix
)

// IsIdentity reports whether name is the identity object's.
func IsIdentity(name string) bool { return name == identityName }

// WALName returns the name of the object that holds the WAL from start up to end of a timeline. Names sort by timeline, then
// start, then end.
func WALName(tli protocol.Timeline, start, end protocol.LSN) string {
	return fmt.Sprintf("%s%016X-%016X%s", TimelinePrefix(tli), uint64(start), uint64(end), walSuffix)
}

// TimelinePrefix begins the names of all WAL objects of a timeline.
func TimelinePrefix(tli protocol.Timeline) string {
	return fmt.Sprintf("%s%08X/", walPrefix, uint32(tli))
}

// WALPrefix begins the names of all WAL objects, FilePrefix of all plain files.
func WALPrefix() string { return walPrefix }

// FilePrefix begins the names of all plain files.
func FilePrefix() string { return filePrefix }

// Span is what the name of a WAL object says.
type Span struct {
	Timeline   protocol.Timeline
	Start, End protocol.LSN
}

// Name returns the name that says s.
func (s Span) Name() string { return WALName(s.Timeline, s.Start, s.End) }

var walName = regexp.MustCompile(`^wal/([0-9A-F]{8})/([0-9A-F]{16})-([0-9A-F]{16})\.wal$`)

// ParseWALName reads the name of a WAL object; false for any other name.
func ParseWALName(name string) (Span, bool) {
	m := walName.FindStringSubmatch(name)
	if m == nil {
		return Span{}, false
	}
	tli, _ := strconv.ParseUint(m[1], 16, 32)
	start, _ := strconv.ParseUint(m[2], 16, 64)
	end, _ := strconv.ParseUint(m[3], 16, 64)
	s := Span{Timeline: protocol.Timeline(tli), Start: protocol.LSN(start), End: protocol.LSN(end)}
	return s, tli != 0 && start < end
}

// The files that PostgreSQL archives beside whole segments.
//
// Source: PostgreSQL src/include/access/xlog_internal.h, TLHistoryFileName, BackupHistoryFileName, IsPartialXLogFileName (13-18).
var plainFile = regexp.MustCompile(`^([0-9A-F]{8}\.history|[0-9A-F]{24}\.[0-9A-F]{8}\.backup|[0-9A-F]{24}\.partial)$`)

// PlainFile reports whether a file of this name is kept as it is: a timeline history, a backup history, a partial segment.
func PlainFile(file string) bool { return plainFile.MatchString(file) }

// FileName returns the name of the object that holds a plain file.
func FileName(file string) string { return filePrefix + file }

// ParseFileName returns the plain file's name in the name of an object; false for any other name.
func ParseFileName(name string) (string, bool) {
	file, ok := strings.CutPrefix(name, filePrefix)
	return file, ok && PlainFile(file)
}
