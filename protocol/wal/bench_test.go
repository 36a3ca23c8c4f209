package wal_test

import (
	"syscall"
	"testing"

	"walproxy/protocol/wal"
)

// benchmarkWalk walks, checks and decodes the WAL that b holds, in chunks as a walsender cuts them.
func benchmarkWalk(bench *testing.B, b *builder) {
	const chunk = 128 << 10
	walker := wal.NewWalker(b.start, b.options())
	var r wal.Record
	records := 0
	cpu := cpuTime(bench)
	bench.SetBytes(int64(len(b.out)))
	bench.ReportAllocs()
	for bench.Loop() {
		walker.Reset(b.start)
		records = 0
		for rest := b.out; len(rest) > 0; {
			n := min(len(rest), chunk)
			if err := walker.Feed(rest[:n]); err != nil {
				bench.Fatal(err)
			}
			rest = rest[n:]
			for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
				if ev.Kind != wal.KindRecord {
					continue
				}
				if err := wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &r); err != nil {
					bench.Fatal(err)
				}
				records++
			}
		}
	}
	spent := float64(cpuTime(bench) - cpu)
	bench.ReportMetric(spent/float64(bench.N)/float64(records), "cpu-ns/record")
	bench.ReportMetric(float64(bench.N)*float64(len(b.out))/1e6/(spent/1e9), "MB/cpu-s")
}

// cpuTime returns the time in nanoseconds that the process has spent on processors: machines that run tests are busy.
func cpuTime(bench *testing.B) int64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		bench.Fatal(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}

// BenchmarkSmallRecords: heap updates and btree inserts without page images.
func BenchmarkSmallRecords(bench *testing.B) {
	b := newBuilder(wal.PG15, wal.DefaultPageSize, wal.DefaultSegmentSize, wal.DefaultSegmentSize)
	data := make([]byte, 40)
	rel := wal.Rel{Tablespace: 1663, Database: 5, Number: 16384}
	for i := uint32(0); len(b.out) < 8*mib; i++ {
		r := &wal.Record{Header: wal.Header{Rmgr: wal.RmgrHeap, Info: 0x40, XID: i}, Main: data[:14]}
		r.Blocks = []wal.Block{{Flags: wal.BlockHasData, Rel: rel, Number: i, Data: data}}
		if i%3 == 0 {
			r.Blocks = append(r.Blocks, wal.Block{ID: 1, Flags: wal.BlockSameRel, Rel: rel, Number: i + 1})
		}
		b.record(r)
	}
	benchmarkWalk(bench, b)
}

// BenchmarkImages: one page image per record.
func BenchmarkImages(bench *testing.B) {
	b := newBuilder(wal.PG15, wal.DefaultPageSize, wal.DefaultSegmentSize, wal.DefaultSegmentSize)
	image := make([]byte, 8000)
	for i := uint32(0); len(b.out) < 8*mib; i++ {
		r := &wal.Record{Header: wal.Header{Rmgr: wal.RmgrXLOG, Info: 0xB0, XID: i}}
		r.Blocks = []wal.Block{{
			Flags: wal.BlockHasImage, Rel: wal.Rel{Tablespace: 1663, Database: 5, Number: 16384}, Number: i,
			Image: image, ImageFlags: 3, HoleOffset: 1000, HoleLength: 192,
		}}
		b.record(r)
	}
	benchmarkWalk(bench, b)
}

func BenchmarkAppend(bench *testing.B) {
	rec := body([]byte{0, 0x20, 40, 0}, rel(), []byte{255, 14}, make([]byte, 54))
	var r wal.Record
	if err := wal.Decode(rec, wal.Format{Version: wal.PG15}, &r); err != nil {
		bench.Fatal(err)
	}
	out := make([]byte, 0, len(rec))
	bench.ReportAllocs()
	for bench.Loop() {
		out = r.Append(out[:0], wal.PG15)
		wal.SetCRC(out)
	}
}
