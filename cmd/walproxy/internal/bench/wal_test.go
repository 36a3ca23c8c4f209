package bench

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

const mib = 1 << 20

// generated is WAL made for tests: heap inserts, every third record a commit, now and then an image of a heap page.
type generated struct {
	start   protocol.LSN
	bytes   []byte
	commits []protocol.LSN // the ends of the commits
	images  int
}

func (g *generated) pos() protocol.LSN { return g.start + protocol.LSN(len(g.bytes)) }

// generate makes at least size bytes, and ends on a record. Segments are 1 MiB. start is that of a segment.
func generate(start protocol.LSN, size int) *generated {
	g := &generated{start: start}
	r := rand.New(rand.NewPCG(1, uint64(start)))
	image := make([]byte, 8000)
	image[16], image[17] = 0x00, 0x20 // pd_special: at the end of the page
	prev := protocol.LSN(0)
	for n := 0; len(g.bytes) < size; n++ {
		rec := wal.Record{Header: wal.Header{XID: uint32(700 + n/3), Prev: prev}}
		switch {
		case n%3 == 2:
			rec.Rmgr, rec.Main = wal.RmgrTransaction, make([]byte, 8+r.IntN(40))
		default:
			block := wal.Block{Flags: wal.BlockHasData, Rel: wal.Rel{Tablespace: 1663, Database: 5, Number: 16384}, Number: uint32(n / 50)}
			block.Data = []byte("tuple of some words, then " + string(rune('a'+r.IntN(26))))
			if n%40 == 0 {
				block.Flags |= wal.BlockHasImage
				block.Image, block.ImageFlags, block.HoleOffset, block.HoleLength = image, 3, 600, 192
				g.images++
			}
			rec.Rmgr, rec.Main, rec.Blocks = wal.RmgrHeap, []byte{byte(n), 0, 8}, []wal.Block{block}
		}
		b := rec.Append(nil, wal.PG15)
		wal.SetCRC(b)
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		prev = g.record(b)
		if n%3 == 2 {
			g.commits = append(g.commits, g.pos())
		}
	}
	return g
}

// record appends a padded record, over as many pages as it takes, and returns where it starts.
func (g *generated) record(b []byte) protocol.LSN {
	g.page(0, 0)
	start := g.pos()
	total := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	for done := 0; ; {
		n := min(len(b)-done, int(g.pos().Next(wal.DefaultPageSize)-g.pos()))
		g.bytes = append(g.bytes, b[done:done+n]...)
		if done += n; done == len(b) {
			return start
		}
		g.page(wal.FirstIsContrecord, uint32(max(total-done, 0)))
	}
}

// page begins a page if it is time to.
func (g *generated) page(flags wal.PageFlags, remLen uint32) {
	if g.pos()%wal.DefaultPageSize != 0 {
		return
	}
	h := wal.PageHeader{Version: wal.PG15, Flags: flags, Timeline: 1, Addr: g.pos(), RemLen: remLen}
	if remLen == 0 {
		h.Flags = 0
	}
	if g.pos()%mib == 0 {
		h.Flags |= wal.LongHeader
		h.SystemID, h.SegmentSize, h.PageSize = 7, mib, wal.DefaultPageSize
	}
	g.bytes = h.Append(g.bytes)
}

// segments writes the WAL as segments of 1 MiB, the last one filled up with zeros.
func (g *generated) segments(t testing.TB, dir string) {
	t.Helper()
	b := append([]byte(nil), g.bytes...)
	for len(b)%mib != 0 {
		b = append(b, 0)
	}
	for at := 0; at < len(b); at += mib {
		write(t, filepath.Join(dir, protocol.SegmentName(1, g.start+protocol.LSN(at), mib)), b[at:at+mib])
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
