package main

import (
	"context"
	"fmt"
)

// headline returns the settings of the tables that need not show every level.
func (b *bench) headline() []setting {
	var few []setting
	for _, s := range b.settings() {
		if s.codec != "none" && (len(few) == 0 || few[len(few)-1].codec != s.codec) {
			few = append(few, setting{codec: s.codec})
		}
	}
	return few
}

// commits cuts a frame at every transaction's end.
func (b *bench) commits(ctx context.Context) error {
	names := b.workloads
	if b.quick {
		names = b.only("oltp", "oltp_nofpw", "mixed")
	}
	if len(names) == 0 {
		return nil
	}
	b.report.Line("#### A frame per commit\n")
	b.report.Line("What a synchronous load costs on the link. Cost of a flush: bytes more than sealed, per frame. Times in µs.\n")
	b.report.Line("| workload | codec | WAL / stored | frames | bytes per frame | cost of a flush | encode p50 | p99 | decode p50 | p99 |\n" +
		"|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, name := range names {
		dir, err := b.make(ctx, source{workload: name, compression: "off"})
		if err != nil {
			return err
		}
		settings := b.headline()
		if name == "oltp_nofpw" && !b.quick {
			settings = b.settings()
		}
		for _, s := range settings {
			sealed, err := b.once(ctx, dir, s, nil)
			if err != nil {
				return err
			}
			s.flush = "commit"
			f, err := b.measure(ctx, dir, s)
			if err != nil {
				return err
			}
			l, frames := &f.Latency, float64(f.Latency.Frames)
			b.report.Line("| %s | %s | %.2fx | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |", name, s, f.Ratio, l.Frames, float64(f.EncodedBytes)/frames,
				float64(f.EncodedBytes-sealed.EncodedBytes)/frames, l.EncodeP50, l.EncodeP99, l.DecodeP50, l.DecodeP99)
		}
	}
	b.report.Line("")
	return nil
}

// serverCompression varies wal_compression on the server.
func (b *bench) serverCompression(ctx context.Context) error {
	methods, err := compressions()
	if err != nil {
		return err
	}
	names := b.only("oltp", "index", "wide", "ints", "delete", "mixed", "orders")
	if b.quick {
		names = b.only("oltp")
	}
	if len(names) == 0 {
		return nil
	}
	b.report.Line("#### wal_compression on the primary\n")
	b.report.Line("| workload | wal_compression | codec | KB of WAL | KB stored | WAL / stored | smaller than %s |\n|---|---|---|---:|---:|---:|---:|", yardstick)
	for _, name := range names {
		for _, method := range methods {
			dir, err := b.make(ctx, source{workload: name, compression: method})
			if err != nil {
				return err
			}
			var against peer
			for i, s := range b.headline() {
				var more []string
				if i == 0 {
					more = []string{"--peers=" + yardstick}
				}
				f, err := b.once(ctx, dir, s, more)
				if err != nil {
					return err
				}
				if i == 0 {
					against = f.peer(yardstick)
				}
				b.report.Line("| %s | %s | %s | %.0f | %.0f | %.2fx | %s |", name, method, s.codec, float64(f.RawBytes)/1e3, float64(f.EncodedBytes)/1e3, f.Ratio,
					number("%.2fx", quotient(float64(against.EncodedBytes), float64(f.EncodedBytes))))
			}
		}
	}
	b.report.Line("")
	return nil
}

// clients varies how many write at a time.
func (b *bench) clients(ctx context.Context) error {
	counts := []int{1, 8, 32, 64}
	if b.quick {
		counts = []int{1, 32}
	}
	if len(b.only("oltp_nofpw")) == 0 {
		return nil
	}
	b.report.Line("#### Bytes per transaction, oltp_nofpw, a frame per commit\n")
	b.report.Line("| clients | codec | WAL | stored |\n|---:|---|---:|---:|")
	for _, clients := range counts {
		dir, err := b.make(ctx, source{workload: "oltp_nofpw", compression: "off", clients: clients})
		if err != nil {
			return err
		}
		for _, s := range b.headline() {
			s.flush = "commit"
			f, err := b.once(ctx, dir, s, []string{"--by-kind"})
			if err != nil {
				return err
			}
			transactions := float64(f.count("Transaction/COMMIT"))
			b.report.Line("| %d | %s | %.1f | %.1f |", clients, s.codec, float64(f.RawBytes)/transactions, float64(f.EncodedBytes)/transactions)
		}
	}
	b.report.Line("")
	return nil
}

// distances varies the reset distance.
func (b *bench) distances(ctx context.Context) error {
	names := b.only("oltp_nofpw", "mixed")
	if b.quick || len(names) == 0 {
		return nil
	}
	b.report.Line("#### Reset distance, sealed windows\n")
	b.report.Line("WAL / stored, of the first %d MiB of WAL.\n", b.longMiB)
	b.report.Line("| workload | codec | 1 MiB | 2 | 4 | 8 | 16 | 32 | 64 MiB |\n|---|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, name := range names {
		dir, err := b.make(ctx, source{workload: name, compression: "off", mib: b.longMiB})
		if err != nil {
			return err
		}
		for _, s := range b.headline() {
			line := fmt.Sprintf("| %s | %s |", name, s.codec)
			for s.distanceMiB = 1; s.distanceMiB <= 64; s.distanceMiB *= 2 {
				f, err := b.once(ctx, dir, s, nil)
				if err != nil {
					return err
				}
				line += fmt.Sprintf(" %.2fx |", f.Ratio)
			}
			b.report.Line("%s", line)
		}
	}
	b.report.Line("")
	return nil
}

// processors compares one with two.
func (b *bench) processors(ctx context.Context) error {
	names := b.only("oltp_nofpw", "mixed")
	if len(names) == 0 {
		return nil
	}
	b.report.Line("#### Two processors, sealed windows\n")
	b.report.Line("How many times as fast as with one, on the first %d MiB of WAL, without the first window of each processor; best of %d.\n", b.longMiB, b.rounds)
	b.report.Line("| workload | codec | encode | decode |\n|---|---|---:|---:|")
	for _, name := range names {
		dir, err := b.make(ctx, source{workload: name, compression: "off", mib: b.longMiB})
		if err != nil {
			return err
		}
		for _, s := range b.headline() {
			one, err := b.measure(ctx, dir, s)
			if err != nil {
				return err
			}
			s.cpus = 2
			two, err := b.measure(ctx, dir, s)
			if err != nil {
				return err
			}
			encode, decode := one.steady()
			encode2, decode2 := two.steady()
			b.report.Line("| %s | %s | %s | %s |", name, s.codec, number("%.2f", quotient(encode2, encode)), number("%.2f", quotient(decode2, decode)))
		}
	}
	b.report.Line("")
	return nil
}
