package main

import (
	"context"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// images compares two ways to compress page images without what came before: each for itself, as wal_compression does, and all
// images of a record together.
func (b *bench) images(ctx context.Context) error {
	if len(b.only("index")) == 0 {
		return nil
	}
	dir, err := b.make(ctx, source{workload: "index", compression: "off", major: pgcluster.Newest})
	if err != nil {
		return err
	}
	start, content, err := readSegments(dir)
	if err != nil {
		return err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	var records, images, raw, each, together int
	var out, all []byte
	err = eachRecord(start, content, func(r *wal.Record) {
		all = all[:0]
		for i := range r.Blocks {
			if block := &r.Blocks[i]; block.HasImage() {
				images++
				out = encoder.EncodeAll(block.Image, out[:0])
				each += min(len(out), len(block.Image))
				all = append(all, block.Image...)
			}
		}
		if len(all) > 0 {
			records++
			raw += len(all)
			out = encoder.EncodeAll(all, out[:0])
			together += min(len(out), len(all))
		}
	})
	if err != nil {
		return err
	}
	b.report.Line("#### Page images of CREATE INDEX, without what came before\n")
	b.report.Line("Workload index on PostgreSQL %d, whose records of CREATE INDEX hold several images: %d in %d records, zstd at level 3.\n", pgcluster.Newest, images, records)
	b.report.Line("| images compressed | KB | of raw |\n|---|---:|---:|")
	b.report.Line("| not at all | %.0f | 1.000 |", float64(raw)/1e3)
	b.report.Line("| each for itself | %.0f | %.3f |", float64(each)/1e3, float64(each)/float64(raw))
	b.report.Line("| those of a record together | %.0f | %.3f |", float64(together)/1e3, float64(together)/float64(raw))
	for _, s := range b.headline() {
		f, err := b.once(ctx, dir, s, nil)
		if err != nil {
			return err
		}
		b.report.Line("| all WAL in a stream, codec %s | %.0f | %.3f |", s.codec, float64(f.EncodedBytes)/1e3, float64(f.EncodedBytes)/float64(raw))
	}
	b.report.Line("")
	return nil
}

// eachRecord calls do with every record of content, which begins at start.
func eachRecord(start protocol.LSN, content []byte, do func(*wal.Record)) error {
	walker := wal.NewWalker(start, wal.Options{})
	var r wal.Record
	const chunk = 128 << 10
	for at := 0; at < len(content); at += chunk {
		if err := walker.Feed(content[at:min(at+chunk, len(content))]); err != nil {
			return err
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			if ev.Kind != wal.KindRecord {
				continue
			}
			if err := wal.Decode(ev.Data, wal.Format{Version: ev.Version}, &r); err != nil {
				return fmt.Errorf("record at %s: %w", ev.Start, err)
			}
			do(&r)
		}
	}
	return nil
}
