package inspect

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal"
	"walproxy/protocol/wal/waltest"
	"walproxy/recompress"
)

// sealedSample returns a file with real WAL of which a record in the middle was made a checkpoint, as a sealed window.
func sealedSample(t *testing.T) (file string, first, checkpoint protocol.LSN) {
	sample := waltest.Named(t, "oltp")
	content := sample.WAL
	walker := wal.NewWalker(sample.Start, wal.Options{})
	if err := walker.Feed(bytes.Clone(content)); err != nil {
		t.Fatal(err)
	}
	for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
		if ev.Kind != wal.KindRecord {
			continue
		}
		if first == 0 {
			first = ev.Start
		}
		at := int(ev.Start - sample.Start)
		if at > len(content)/2 && uint64(ev.Start)%8192+uint64(len(ev.Data)) < 8192 {
			checkpoint = ev.Start
			record := content[at : at+len(ev.Data)]
			record[16], record[17] = 0x10, 0
			wal.SetCRC(record)
			break
		}
	}
	sealer, err := recompress.NewSealer(recompress.Options{Codec: recompress.Model})
	if err != nil {
		t.Fatal(err)
	}
	f := link.Frame{Timeline: 1, Start: sample.Start, RawLen: uint32(len(content)), RawSum: link.Checksum(content), Payload: content}
	f.Seal()
	h := link.WindowHeader{Kind: link.WindowLive, SystemID: 7, Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: 8192, ResetDistance: 4 << 20, Start: f.Start}
	window, _, err := sealer.Seal(nil, h, func(yield func(*link.Frame, error) bool) { yield(&f, nil) })
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "0.win")
	if err := os.WriteFile(file, window, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, first, checkpoint
}

// A checkpoint in the middle of a sealed window is read from a frame of its own; other records by their stream.
func TestRecord(t *testing.T) {
	file, first, checkpoint := sealedSample(t)
	show := func(lsn protocol.LSN) (string, error) {
		var out strings.Builder
		err := Record(&out, file, lsn)
		return out.String(), err
	}
	got, err := show(checkpoint)
	if err != nil || !strings.Contains(got, "XLOG/CHECKPOINT_ONLINE, ") || !strings.Contains(got, "read: 1 frames, ") || !strings.Contains(got, "it stands alone") {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = show(first)
	if err != nil || !strings.Contains(got, "xid ") || !strings.Contains(got, "its stream decoded") {
		t.Errorf("%v\n%s", err, got)
	}
	for _, lsn := range []protocol.LSN{first + 8, checkpoint + 4, checkpoint.Next(8192), 5} {
		if got, err := show(lsn); !errors.Is(err, ErrNoRecord) {
			t.Errorf("no record at %s: %v\n%s", lsn, err, got)
		}
	}
}

// The pages of a record are those of the server's wal_block_size.
func TestRecordOnOtherPages(t *testing.T) {
	const start, pageSize = protocol.LSN(0x3000000), 16 << 10
	header := wal.PageHeader{Version: wal.PG18, Flags: wal.LongHeader, Timeline: 1, Addr: start, SystemID: 7, SegmentSize: 16 << 20, PageSize: pageSize}
	record := wal.Record{Header: wal.Header{Rmgr: wal.RmgrLogicalMessage, XID: 700}, Main: make([]byte, 9000)}
	encoded := record.Append(nil, wal.PG18)
	wal.SetCRC(encoded)
	content := append(header.Append(nil), encoded...)
	h := link.WindowHeader{Kind: link.WindowLive, SystemID: 7, Timeline: 1, SegmentSize: 16 << 20, WALBlockSize: pageSize, ResetDistance: 4 << 20, Start: start}
	f := link.Frame{Timeline: 1, Start: start, RawLen: uint32(len(content)), Payload: content}
	f.SealRaw()
	file := filepath.Join(t.TempDir(), "0.win")
	if err := os.WriteFile(file, (&link.Cursor{}).Append(h.Append(nil), &f), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Record(&out, file, start+wal.LongHeaderBytes); err != nil || !strings.Contains(out.String(), "xid 700") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
