package walformat

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// corpus is where to write pages for the tests that run without servers: protocol/wal/waltest/versions, from the root of the repository.
var corpus = flag.String("corpus", "", "directory to write WAL pages of each version to (protocol/wal/waltest/versions)")

const (
	windowPages = 2
	windowCount = 9
)

// TestWriteCorpus picks the pages of a mixed workload that show most kinds of records and writes them, one file per version.
// Without -corpus it does nothing: the pages that are checked in stay as they are.
func TestWriteCorpus(t *testing.T) {
	if *corpus == "" {
		return
	}
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		c := start(ctx, t, major)
		w := mixed(ctx, t, c)
		records := decode(t, w, options(c))
		var out bytes.Buffer
		gz, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		must(t, err)
		for _, at := range pick(w, records, wal.Version(major)) {
			from := at - w.begin
			_, err := gz.Write(w.bytes[from : from+windowPages*wal.DefaultPageSize])
			must(t, err)
		}
		must(t, gz.Close())
		must(t, os.MkdirAll(*corpus, 0o755))
		must(t, os.WriteFile(filepath.Join(*corpus, fmt.Sprintf("pg%d.wal.gz", major)), out.Bytes(), 0o644))
	})
}

// pick returns the starts of the windows that show, one after the other, most of what is not yet shown.
func pick(w span, records []seen, v wal.Version) []protocol.LSN {
	const size = windowPages * wal.DefaultPageSize
	shows := map[protocol.LSN]map[string]bool{}
	for i := range records {
		s := &records[i]
		window := s.start.Floor(size)
		if s.end > window+size || window+size > w.end {
			continue
		}
		if shows[window] == nil {
			shows[window] = map[string]bool{}
		}
		for _, what := range features(s, v) {
			shows[window][what] = true
		}
	}
	first := w.begin // the long header
	picked, shown := []protocol.LSN{first}, shows[first]
	if shown == nil {
		shown = map[string]bool{}
	}
	for len(picked) < windowCount {
		var best protocol.LSN
		most := 0
		for window := w.begin; window < w.end; window += size {
			n := 0
			for what := range shows[window] {
				if !shown[what] {
					n++
				}
			}
			if n > most {
				best, most = window, n
			}
		}
		if most == 0 {
			break
		}
		picked = append(picked, best)
		for what := range shows[best] {
			shown[what] = true
		}
	}
	return picked
}

func features(s *seen, v wal.Version) []string {
	list := []string{s.Rmgr.String() + s.operation(v), fmt.Sprint("blocks ", len(s.Blocks))}
	if s.HasOrigin {
		list = append(list, "origin")
	}
	if s.HasTopXID {
		list = append(list, "top-level xid")
	}
	for i := range s.Blocks {
		if b := &s.Blocks[i]; b.HasImage() {
			list = append(list, fmt.Sprint("image ", b.ImageFlags))
		}
	}
	return list
}
