// Command generate makes real WAL with a throwaway PostgreSQL server:
//
//	go run ./integration/workload/generate [flags] WORKLOAD COMPRESSION DIR
//
// COMPRESSION is the server's wal_compression: off, pglz, lz4 or zstd. DIR gets the segments that the workload wrote.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"walproxy/integration/workload"
)

func main() {
	o := workload.Options{}
	flag.Float64Var(&o.Scale, "scale", 1, "factor for rows and transactions")
	flag.IntVar(&o.Clients, "clients", 0, "concurrent clients; 0 is what the workload has by itself")
	flag.IntVar(&o.Major, "server", 0, "major version of the server; 0 is the newest with client tools")
	flag.IntVar(&o.SegmentMiB, "segment", 16, "MiB in a segment")
	keep := flag.Int64("keep", 0, "MiB to keep at most, the first ones; 0 is all")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: generate [flags] WORKLOAD COMPRESSION DIR\n\nworkloads:")
		for _, name := range workload.Names() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-11s %s\n", name, workload.About(name))
		}
		fmt.Fprintln(flag.CommandLine.Output(), "\nflags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 3 {
		flag.Usage()
		os.Exit(2)
	}
	o.Name, o.Compression, o.KeepBytes = flag.Arg(0), flag.Arg(1), *keep<<20
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := workload.Generate(ctx, flag.Arg(2), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
	fmt.Printf("PostgreSQL %d wrote %s to %s: %d segments in %s\n", r.Major, r.Begin, r.End, r.Segments, flag.Arg(2))
}
