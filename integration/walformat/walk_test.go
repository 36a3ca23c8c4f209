package walformat

import (
	"bytes"
	"fmt"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// seen is what the walker and the decoder made of one record.
type seen struct {
	start, end protocol.LSN
	wal.Record
}

func (s *seen) operation(v wal.Version) string { return wal.Operation(v, s.Rmgr, s.Info) }

func (s *seen) imageBytes() int {
	n := 0
	for i := range s.Blocks {
		n += len(s.Blocks[i].Image)
	}
	return n
}

// decode walks w in chunks of an odd size and decodes every record. It fails the test unless each record has a right checksum,
// obeys every rule and gives the same bytes when it is appended again, and unless everything but allowed kinds of events is records.
func decode(t *testing.T, w span, o wal.Options, allowed ...wal.Kind) []seen {
	t.Helper()
	walker, joiner := wal.NewWalker(w.begin, o), wal.NewJoiner(w.begin, int(o.PageSize))
	var records []seen
	var joined, again []byte
	kinds := map[wal.Kind]int{}
	add := func(ev *wal.Event) {
		var err error
		joined, err = joiner.Append(joined, ev)
		must(t, err)
		kinds[ev.Kind]++
		if ev.Kind != wal.KindRecord {
			return
		}
		s := seen{start: ev.Start, end: ev.End}
		if err := wal.Decode(bytes.Clone(ev.Data), wal.Format{Version: ev.Version}, &s.Record); err != nil {
			t.Fatalf("record at %s: %v", ev.Start, err)
		}
		again = s.Append(again[:0], ev.Version)
		if !s.Canonical || !bytes.Equal(again, ev.Data) {
			t.Fatalf("record at %s (%s): appended again differs", ev.Start, s.Rmgr)
		}
		records = append(records, s)
	}
	for rest := w.bytes; len(rest) > 0; {
		n := min(len(rest), 12345)
		must(t, walker.Feed(rest[:n]))
		rest = rest[n:]
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			add(ev)
		}
	}
	for ev, ok := walker.Flush(); ok; ev, ok = walker.Flush() {
		add(ev)
	}
	if joined = joiner.Finish(joined); !bytes.Equal(joined, w.bytes) {
		t.Fatal("the events do not join to the WAL")
	}
	for _, kind := range append(allowed, wal.KindPage, wal.KindRecord, wal.KindSwitchTail) {
		delete(kinds, kind)
	}
	if len(kinds) > 0 {
		t.Fatalf("events that are no records: %v", kinds)
	}
	return records
}

// counts returns how many records there are of each operation, and fails the test if one of want is missing.
func counts(t *testing.T, v wal.Version, records []seen, want ...string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for i := range records {
		s := &records[i]
		n[fmt.Sprintf("%s/%s", s.Rmgr, s.operation(v))]++
		n[fmt.Sprintf("class %d", s.Class())]++
		for j := range s.Blocks {
			if b := &s.Blocks[j]; b.HasImage() {
				n["image "+b.Compression(v).String()]++
				if !b.Apply(v) {
					n["image for consistency checks"]++
				}
			}
		}
		if s.HasOrigin {
			n["origin"]++
		}
		if s.HasTopXID {
			n["top-level xid"]++
		}
	}
	for _, key := range want {
		if n[key] == 0 {
			t.Errorf("the workload wrote nothing of %s", key)
		}
	}
	return n
}

// everyMajor is what the workload writes on each version.
var everyMajor = []string{
	"Heap/INSERT", "Heap/INSERT+INIT", "Heap/DELETE", "Heap/UPDATE", "Heap/HOT_UPDATE", "Heap/LOCK", "Heap/TRUNCATE", "Heap2/MULTI_INSERT",
	"Btree/INSERT_LEAF", "Btree/SPLIT_R", "Btree/VACUUM", "Gin/INSERT_LISTPAGE", "Gist/PAGE_UPDATE", "Gist/PAGE_SPLIT", "SPGist/ADD_LEAF",
	"SPGist/PICKSPLIT", "Hash/INSERT", "Hash/SPLIT_PAGE", "Generic/Generic", "Sequence/LOG", "LogicalMessage/MESSAGE", "MultiXact/CREATE_ID",
	"Transaction/COMMIT", "Transaction/ABORT", "Transaction/PREPARE", "Transaction/COMMIT_PREPARED", "Transaction/ABORT_PREPARED",
	"XLOG/SWITCH", "XLOG/CHECKPOINT_ONLINE", "XLOG/FPI", "XLOG/RESTORE_POINT", "Standby/RUNNING_XACTS", "Storage/CREATE", "BRIN/CREATE_INDEX",
	"image none", "image pglz", "image for consistency checks", "origin",
	fmt.Sprintf("class %d", wal.ClassTransactionEnd), fmt.Sprintf("class %d", wal.ClassPrepare), fmt.Sprintf("class %d", wal.ClassSwitch),
	fmt.Sprintf("class %d", wal.ClassCheckpoint),
}
