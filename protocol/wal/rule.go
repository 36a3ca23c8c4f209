package wal

// Rule names an invariant of the format. The zero value means that none is broken.
//
// Source: PostgreSQL src/backend/access/transam/xlogreader.c (13-18): XLogReaderValidatePageHeader for pages,
// ValidXLogRecordHeader, ValidXLogRecord, XLogDecodeNextRecord and DecodeXLogRecord for records, RestoreBlockImage for images.
type Rule uint8

// Rules of pages.
const (
	RuleNone        Rule = iota
	RuleMagic            // the magic is known, and the same on all pages
	RulePageInfo         // only known flag bits are set
	RulePageAddr         // a page says its own LSN
	RuleLongHeader       // a long header on the first page of a segment, and only there
	RuleSystemID         // one system identifier
	RuleSegmentSize      // one segment size
	RuleBlockSize        // one WAL block size
	RuleTimeline         // timelines do not go back
)

// Rules of records between pages.
const (
	RuleLength     Rule = iota + 32 // xl_tot_len holds at least the header, and at most what a server allocates
	RuleRmgr                        // the resource manager exists
	RulePrev                        // xl_prev is the start of the record before
	RuleContrecord                  // a record that is not over goes on on the next page
	RuleRemLen                      // a continuation says how much is left
	RulePadding                     // padding is zero; writers always do so, readers do not look
	RuleSwitchTail                  // zeros follow SWITCH up to the end of the segment
)

// Rules within records.
const (
	RuleCRC         Rule = iota + 64 // xl_crc fits
	RuleBlockID                      // block ids are 0 to 32 or one of the special ones of the version
	RuleBlockOrder                   // block ids ascend
	RuleShort                        // headers lie within the record
	RuleDataLength                   // headers announce exactly the payload there is
	RuleDataFlag                     // block data has a length if and only if its flag is set
	RuleCompression                  // at most one compression method
	RuleHole                         // a hole has an offset and a length; no hole has neither
	RuleImageLength                  // an image fits the block and its flags
	RuleSameRel                      // "same relation" has a relation before it
)

var ruleTexts = [...]string{
	RuleNone:        "none",
	RuleMagic:       "page magic",
	RulePageInfo:    "unknown page flags",
	RulePageAddr:    "page address is not its position",
	RuleLongHeader:  "long header belongs on the first page of a segment and nowhere else",
	RuleSystemID:    "other system identifier",
	RuleSegmentSize: "other segment size",
	RuleBlockSize:   "other WAL block size",
	RuleTimeline:    "timeline went back",
	RuleLength:      "record length",
	RuleRmgr:        "unknown resource manager",
	RulePrev:        "xl_prev is not the record before",
	RuleContrecord:  "record does not go on on the next page",
	RuleRemLen:      "remaining length of a continued record",
	RulePadding:     "padding is not zero",
	RuleSwitchTail:  "bytes behind SWITCH are not zero",
	RuleCRC:         "checksum",
	RuleBlockID:     "unknown block id",
	RuleBlockOrder:  "block ids do not ascend",
	RuleShort:       "headers run out of the record",
	RuleDataLength:  "payload is not as long as the headers say",
	RuleDataFlag:    "block data flag and length disagree",
	RuleCompression: "several compression methods",
	RuleHole:        "hole offset or length",
	RuleImageLength: "image length",
	RuleSameRel:     "same relation as none",
}

func (r Rule) String() string {
	if int(r) >= len(ruleTexts) || ruleTexts[r] == "" {
		return "unknown rule"
	}
	return ruleTexts[r]
}
