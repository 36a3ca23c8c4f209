package main

import (
	"context"
	"fmt"
)

// thresholds varies the size above which records are coded as one unit.
func (b *bench) thresholds(ctx context.Context) error {
	names := b.only("index", "oltp", "copy", "mixed")
	if len(names) == 0 {
		return nil
	}
	sizes := []string{"0", "32", "128", "512", "2KiB", "8KiB", "32KiB", "128KiB", "1MiB"}
	if b.quick {
		sizes = []string{"0", "32", "2KiB", "32KiB"}
	}
	b.report.Line("#### Record threshold, sealed windows\n")
	b.report.Line("KB stored, by the size above which a record may be coded as one unit; 0 is off. It must never be more than that.\n")
	head, rule := "| workload | codec |", "|---|---|"
	for _, size := range sizes {
		head, rule = head+" "+size+" |", rule+"---:|"
	}
	b.report.Line("%s\n%s", head, rule)
	for _, name := range names {
		dir, err := b.make(ctx, source{workload: name, compression: "off"})
		if err != nil {
			return err
		}
		for _, s := range b.headline() {
			line, without := fmt.Sprintf("| %s | %s |", name, s.codec), int64(0)
			for i, size := range sizes {
				f, err := b.once(ctx, dir, s, []string{"--record-threshold", size})
				if err != nil {
					return err
				}
				if i == 0 {
					without = f.EncodedBytes
				}
				if f.EncodedBytes > without {
					return fmt.Errorf("%s on %s: %d bytes with a record threshold of %s, %d without", s, name, f.EncodedBytes, size, without)
				}
				line += fmt.Sprintf(" %.1f |", float64(f.EncodedBytes)/1e3)
			}
			b.report.Line("%s", line)
		}
	}
	b.report.Line("")
	return nil
}
