package main

import (
	"context"
	"fmt"
	"strings"
)

// peerNames are the general compressors in the order of the tables.
var peerNames = []string{"lz4", "gzip", "zstd -3", "zstd -19 --long=27", "xz -9e"}

// fastPeers are those that run in every round.
var fastPeers = []string{"lz4", "gzip", "zstd -3"}

// yardstick is the peer that sizes are held against, pace the one that speeds are held against.
const (
	yardstick = "zstd -19 --long=27"
	pace      = "zstd -3"
)

// column is one way to make WAL smaller: its figures on every workload.
type column struct {
	name                   string
	setting                setting // of walproxy's
	ours                   bool
	bytes, encode, decode  []float64
	smaller, faster, reads []float64 // against yardstick and pace
	firstEncode            []float64 // speeds of the first window
	firstDecode            []float64
	peak                   int64
}

// codecs measures every codec on every workload, in sealed windows, beside the general compressors.
func (b *bench) codecs(ctx context.Context) error {
	b.report.Line("WAL of PostgreSQL, the first %d MiB of each workload. Sizes count all that a node stores. Every run was decoded and compared byte\n"+
		"for byte. Speeds are 10⁶ bytes of WAL per second on one processor.\n", b.keepMiB)
	var columns []*column
	for _, s := range b.settings() {
		columns = append(columns, &column{name: s.String(), setting: s, ours: true})
	}
	for _, name := range peerNames {
		columns = append(columns, &column{name: name})
	}
	var raw []float64
	for _, name := range b.workloads {
		dir, err := b.make(ctx, source{workload: name, compression: "off"})
		if err != nil {
			return err
		}
		all, err := b.sealed(ctx, dir)
		if err != nil {
			return err
		}
		raw = append(raw, float64(all[0].RawBytes))
		for i, c := range columns {
			c.add(all, i)
		}
	}
	b.sizeTable(columns, raw)
	b.speedTable(columns)
	b.workloadSpeeds(columns)
	return b.chart(columns, raw)
}

// sealed returns the figures of every setting. Those of the peers are with the first.
func (b *bench) sealed(ctx context.Context, dir string) ([]figures, error) {
	var all []figures
	for i, s := range b.settings() {
		var more []string
		if i == 0 {
			more = []string{"--peers"}
		}
		f, err := b.measure(ctx, dir, s, more...)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// add takes the figures of a workload into column i of all.
func (c *column) add(all []figures, i int) {
	p := peer{}
	if i < len(all) {
		p = peer{EncodedBytes: all[i].EncodedBytes}
		p.Encode, p.Decode = all[i].steady()
		c.firstEncode, c.firstDecode = append(c.firstEncode, all[i].firstEncode), append(c.firstDecode, all[i].firstDecode)
		c.peak = max(c.peak, all[i].PeakBytes)
	} else {
		p = all[0].peer(c.name)
	}
	against, speed := all[0].peer(yardstick), all[0].peer(pace)
	c.bytes = append(c.bytes, float64(p.EncodedBytes))
	c.encode, c.decode = append(c.encode, p.Encode), append(c.decode, p.Decode)
	c.smaller = append(c.smaller, quotient(float64(against.EncodedBytes), float64(p.EncodedBytes)))
	c.faster, c.reads = append(c.faster, quotient(p.Encode, speed.Encode)), append(c.reads, quotient(p.Decode, speed.Decode))
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (b *bench) sizeTable(columns []*column, raw []float64) {
	b.report.Line("#### Stored size, sealed windows\n")
	b.report.Line("KB (10³ bytes) for each workload. Last line: how many times smaller than `%s`, geometric mean.\n", yardstick)
	head, rule := []string{"workload", "WAL"}, "|---|---:"
	for _, c := range columns {
		head = append(head, c.name)
		rule += "|---:"
	}
	b.report.Line("| %s |\n%s|", strings.Join(head, " | "), rule)
	for row, name := range b.workloads {
		cells := []string{name, fmt.Sprintf("%.0f", raw[row]/1e3)}
		for _, c := range columns {
			cells = append(cells, number("%.0f", c.bytes[row]/1e3))
		}
		b.report.Line("| %s |", strings.Join(cells, " | "))
	}
	cells := []string{"", ""}
	for _, c := range columns {
		cells = append(cells, number("%.2fx", geomean(c.smaller)))
	}
	b.report.Line("| %s |\n", strings.Join(cells, " | "))
}

func (b *bench) speedTable(columns []*column) {
	b.report.Line("#### Speed, sealed windows\n")
	b.report.Line("Geometric means over the workloads; walproxy's include parsing, checksums and the comparison of every frame before it leaves, and\n"+
		"are of the windows behind the first one of the process, whose speed stands beside. Best of %d; `%s` and `xz -9e` ran once.\n"+
		"Memory is resident, of the whole process with encoder and decoder.\n", b.rounds, yardstick)
	b.report.Line("| | encode MB/s | of %[1]s | first window | decode MB/s | of %[1]s | first window | memory MiB |\n|---|---:|---:|---:|---:|---:|---:|---:|", pace)
	for _, c := range columns {
		memory := "-"
		if c.ours {
			memory = fmt.Sprintf("%.0f", float64(c.peak)/(1<<20))
		}
		b.report.Line("| %s | %s | %s | %s | %s | %s | %s | %s |", c.name, number("%.1f", geomean(c.encode)), number("%.2f", geomean(c.faster)),
			number("%.1f", geomean(c.firstEncode)), number("%.1f", geomean(c.decode)), number("%.2f", geomean(c.reads)), number("%.1f", geomean(c.firstDecode)), memory)
	}
	b.report.Line("")
}

// number prints a figure, or a dash where there is none.
func number(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}
