// Package waltest has real WAL for tests, written by PostgreSQL servers, and the random source of tests that print their seed.
package waltest

import (
	"compress/gzip"
	"embed"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// files are samples, each a few pages of one kind of work on PostgreSQL 15, and versions, runs of pages of each major version.
//
//go:embed samples versions
var files embed.FS

var seedFlag = flag.Uint64("seed", 0, "replay the random tests with this seed; 0 takes a new one")

// Random returns a source whose seed is printed when the test fails. It is another one in each run unless -seed says which.
func Random(tb testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	tb.Logf("replay with -seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Sample is a stretch of real WAL that begins with a page. The bytes are the caller's.
type Sample struct {
	Name  string // of the work that wrote it: oltp, index, ...
	Start protocol.LSN
	WAL   []byte
}

// Samples returns all samples, in the order of their names.
func Samples(tb testing.TB) []Sample {
	tb.Helper()
	entries, err := files.ReadDir("samples")
	if err != nil || len(entries) == 0 {
		tb.Fatalf("no samples: %v", err)
	}
	out := make([]Sample, len(entries))
	for i, e := range entries {
		out[i] = Named(tb, strings.TrimSuffix(e.Name(), ".wal.gz"))
	}
	return out
}

// Named returns the sample called name.
func Named(tb testing.TB, name string) Sample {
	tb.Helper()
	b := unpack(tb, path.Join("samples", name+".wal.gz"))
	h, _, err := wal.ParsePageHeader(b)
	if err != nil {
		tb.Fatalf("sample %s: %v", name, err)
	}
	return Sample{Name: name, Start: h.Addr, WAL: b}
}

// Pages returns runs of pages that a server of version v wrote, one behind the other. A page's address says whether it goes on
// with the page before it; those without a header, behind a SWITCH record, do.
func Pages(tb testing.TB, v wal.Version) []byte {
	tb.Helper()
	return unpack(tb, fmt.Sprintf("versions/pg%d.wal.gz", v))
}

func unpack(tb testing.TB, name string) []byte {
	tb.Helper()
	f, err := files.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return b
}
