package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"walproxy/cmd/walproxy/internal/bench"
	"walproxy/cmd/walproxy/internal/config"
	"walproxy/recompress"
)

// benchFlags are the words of the command line.
type benchFlags struct {
	codec, distance, flush string
	compress, peers        string
	maxRecord, threshold   string
	json                   bool
	profile                string
	options                bench.Options
}

func newBenchCommand() *cobra.Command {
	flags := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench [flags] PATH...",
		Short: "Measure what recompression makes of WAL on disk",
		Long: `Encodes WAL segments, or all segments in a directory, as a node would store them, decodes them again, compares every byte,
and tells size, speed and memory. It changes nothing. Contiguous segments in a directory are one stream of WAL.

The stored size counts every byte: payloads, headers of frames and of windows. Speeds are in 10^6 bytes of WAL per second and
cover parsing, checksums, and decoding and comparing each frame before it counts. Exits with 1 if anything came back changed.`,
		Example: `  walproxy bench /var/lib/postgresql/15/main/pg_wal
  walproxy bench --flush commit --by-kind 000000010000000000000042
  walproxy bench --cpus 1 --peers --json archive/`,
		Args: arguments(cobra.MinimumNArgs(1)),
	}
	f, o := cmd.Flags(), &flags.options
	f.StringVar(&flags.codec, "codec", "auto", "`CODEC`: "+strings.Join(recompress.Codecs(), ", "))
	f.IntVar(&o.Recompress.Level, "level", 0, "effort `N`: 1, 3, 5, 10 or 16; 0 is the codec's default")
	f.StringVar(&flags.distance, "reset-distance", config.Bytes(recompress.DefaultResetDistance).String(), "bytes of WAL in a window: a power of two from 1MiB to 64MiB (`SIZE`)")
	f.StringVar(&flags.compress, "compress", "all", "`WORK` that is compressed: off, vacuum, physical, logical or all")
	f.StringVar(&flags.maxRecord, "max-record-bytes", "0", "records above this `SIZE` are not compressed; 0: there is none")
	f.StringVar(&flags.threshold, "record-threshold", "0", "records above this `SIZE` are coded as one unit; 0: none are")
	f.StringVar(&flags.flush, "flush", "window", "where frames end: window (as when sealed), commit, chunk (as with recompress.hold), or a number of bytes (`WHERE`)")
	f.IntVar(&o.CPUs, "cpus", 0, "use `N` processors; 0 means all")
	f.StringVar(&flags.peers, "peers", "", "also run the same bytes through zstd, xz, lz4 and gzip where installed, each on one processor; --peers='zstd -3,lz4' only through these (`NAMES`)")
	f.Lookup("peers").NoOptDefVal = "all"
	f.BoolVar(&o.ByKind, "by-kind", false, "also tell what kinds of records and page images the WAL consists of")
	f.BoolVar(&o.Latency, "latency", false, "also tell how long single frames take, and the speed without the first window of each processor")
	f.BoolVar(&flags.json, "json", false, "print one JSON object")
	f.StringVar(&flags.profile, "cpu-profile", "", "write where the time goes to `FILE`, for go tool pprof")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := flags.parse(); err != nil {
			return &usageError{err}
		}
		return flags.run(cmd, args)
	}
	return cmd
}

// parse turns words into options.
func (f *benchFlags) parse() (err error) {
	o := &f.options
	if o.Recompress.Codec, err = recompress.ParseCodec(f.codec); err != nil {
		return err
	}
	distance, err := plainBytes(f.distance)
	if err != nil || distance > 1<<31 {
		return fmt.Errorf("reset distance %q: want a power of two from 1MiB to 64MiB", f.distance)
	}
	o.Recompress.ResetDistance = uint32(distance)
	if o.Recompress.Compress, err = recompress.ParsePolicy(f.compress); err != nil {
		return err
	}
	if o.Recompress.MaxRecordBytes, err = recordBytes(f.maxRecord); err != nil {
		return err
	}
	if o.Recompress.RecordThreshold, err = recordBytes(f.threshold); err != nil {
		return err
	}
	if err = o.Recompress.CheckLevel(); err != nil {
		return err
	}
	if o.Cut, err = bench.ParseCut(f.flush, plainBytes); err != nil {
		return err
	}
	if err := f.parsePeers(); err != nil {
		return err
	}
	if o.CPUs < 0 {
		return fmt.Errorf("%d processors: want 1 or more, or 0 for all", o.CPUs)
	}
	_, err = recompress.NewWriter(o.Recompress)
	return err
}

func (f *benchFlags) parsePeers() error {
	known := bench.PeerNames()
	switch f.peers {
	case "":
		return nil
	case "all":
		f.options.Peers = known
		return nil
	}
	f.options.Peers = strings.Split(f.peers, ",")
	for _, name := range f.options.Peers {
		if !slices.Contains(known, name) {
			return fmt.Errorf("peer %q: want some of %s", name, strings.Join(known, ","))
		}
	}
	return nil
}

func recordBytes(text string) (int64, error) {
	n, err := plainBytes(text)
	if err != nil || n > 1<<31 {
		return 0, fmt.Errorf("record size %q: want a size, as in 8KiB, or 0", text)
	}
	return int64(n), nil
}

// plainBytes reads a size with a unit, or a bare number of bytes.
func plainBytes(text string) (uint64, error) {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return n, nil
	}
	n, err := config.ParseBytes(text)
	return uint64(n), err
}

func (f *benchFlags) run(cmd *cobra.Command, paths []string) error {
	clean := func() {}
	if terminal, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(terminal.Fd())) {
		f.options.Progress, clean = showProgress(terminal)
	}
	stop, err := startProfile(f.profile)
	if err != nil {
		return err
	}
	report, err := bench.Run(cmd.Context(), paths, f.options)
	err = errors.Join(err, stop())
	clean()
	if report == nil {
		return err
	}
	for _, hint := range report.Hints {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "walproxy:", hint)
	}
	out := cmd.OutOrStdout()
	if f.json {
		return errors.Join(err, writeJSON(out, report))
	}
	return errors.Join(err, report.WriteTable(out, f.options))
}

// startProfile writes a profile to the file at path until stop is called; none if path is empty.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// showProgress returns a bench.Options.Progress that rewrites one line of a terminal, and what removes the line.
func showProgress(w io.Writer) (show func(done, total int64), clean func()) {
	const erase = "\r\x1b[K"
	started, last := time.Now(), time.Time{}
	show = func(done, total int64) {
		now := time.Now()
		if total == 0 || done < total && now.Sub(last) < 100*time.Millisecond {
			return
		}
		last = now
		_, _ = fmt.Fprintf(w, "%s%3d %%  %d of %d MiB  %.0f s", erase, done*100/total, done>>20, total>>20, now.Sub(started).Seconds())
	}
	return show, func() { _, _ = io.WriteString(w, erase) }
}
