package model

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

var (
	walFlag   = flag.String("wal", "", "directories of WAL segments for BenchmarkWAL, separated by commas")
	limitFlag = flag.Int("walbytes", 16<<20, "bytes of each directory to code")
	skipFlag  = flag.Int("walskip", 1, "segments of each directory to leave out, the first ones")
	fieldFlag = flag.Bool("fields", false, "print what each field costs")
	roundFlag = flag.Int("rounds", 1, "the best of so many rounds is shown")
	liveFlag  = flag.Bool("live", true, "code per commit too")
	predFlag  = flag.Int("predictions", 1, "predictions that are combined for each decision")
	peersFlag = flag.Bool("peers", false, "code the same bytes with zstd -3")
)

const windowBytes = 4 << 20

// cpu returns the CPU time of this thread.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(1, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readWAL returns the first bytes of the segments in dir and where they start.
func readWAL(tb testing.TB, dir string, limit int) (protocol.Timeline, protocol.LSN, []byte) {
	names, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9A-F]", 24)))
	if err != nil || len(names) == 0 {
		tb.Fatalf("no segments in %s: %v", dir, err)
	}
	sort.Strings(names)
	names = names[min(*skipFlag, len(names)-1):]
	var wal []byte
	var tli protocol.Timeline
	var start protocol.LSN
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		if wal == nil {
			if tli, start, err = protocol.ParseSegmentName(filepath.Base(name), uint64(len(b))); err != nil {
				tb.Fatal(err)
			}
		}
		if wal = append(wal, b...); len(wal) >= limit {
			wal = wal[:limit]
			break
		}
	}
	return tli, start, wal
}

// commitEnds returns where pieces end that are cut behind each commit record, as a synchronous load would have them.
func commitEnds(b []byte, start protocol.LSN) []int {
	var ends []int
	m := newModel()
	m.reset(1, start)
	m.wal, m.end = b, len(b)
	for m.at < m.end {
		switch n := wal.PageHeaderBytes(b[m.at:], m.page.pos); {
		case uint64(m.page.pos)%walPageBytes == 0 && n > 0:
			m.page.rest = 0
			skip := int(le.Uint32(b[m.at+16:]))
			m.page.magic = le.Uint16(b[m.at:])
			m.at, m.page.pos = m.at+n, m.page.pos+protocol.LSN(n)
			skip = min((skip+7)&^7, walPageBytes-n)
			if skip > 0 && len(ends) == 0 {
				m.at, m.page.pos = m.at+skip, m.page.pos+protocol.LSN(skip)
			}
		case m.gather():
			n := (m.rec.physical + 7) &^ 7
			m.at, m.page.pos = m.at+n, m.page.pos+protocol.LSN(n)
			if m.rec.rmid == rmXact && m.rec.info&0x70 == xactCommit {
				ends = append(ends, m.at)
			}
		default:
			m.at, m.page.pos = m.at+8, m.page.pos+8
		}
	}
	return append(ends, len(b))
}

type result struct {
	payload, frames int
	encode, decode  time.Duration
}

// roundTrip codes wal in windows, in pieces that end at ends (nil: whole windows), and decodes it again.
func roundTrip(tb testing.TB, tli protocol.Timeline, start protocol.LSN, wal []byte, ends []int, costs *Costs) result {
	enc, dec := NewEncoder(*predFlag), NewDecoder()
	enc.m.cost = costs
	runtime.LockOSThread() // cpu counts one thread
	defer runtime.UnlockOSThread()
	var res result
	var payload, out []byte
	for at := 0; at < len(wal); {
		pos := start + protocol.LSN(at)
		n := min(windowBytes-int(uint64(pos)%windowBytes), len(wal)-at)
		begin := uint64(pos)%windowBytes == 0 || at == 0
		for len(ends) > 0 && ends[0] <= at {
			ends = ends[1:]
		}
		if len(ends) > 0 {
			n = min(n, ends[0]-at)
		}
		t0 := cpu()
		if begin {
			enc.Reset(tli, pos)
		}
		if costs != nil {
			costs.last, costs.begun = 0, 0
		}
		payload = enc.Append(payload[:0], wal[at:at+n])
		t1 := cpu()
		if begin {
			dec.Reset(tli, pos)
		}
		var err error
		out, err = dec.Decode(out[:0], payload, n)
		t2 := cpu()
		if err != nil {
			tb.Fatalf("decode at %s: %v", pos, err)
		}
		if !bytes.Equal(out, wal[at:at+n]) {
			tb.Fatalf("piece at %s differs", pos)
		}
		res.payload += len(payload)
		res.frames++
		res.encode += t1 - t0
		res.decode += t2 - t1
		at += n
	}
	return res
}

func BenchmarkWAL(b *testing.B) {
	if *walFlag == "" {
		return
	}
	b.ResetTimer()
	for dir := range strings.SplitSeq(*walFlag, ",") {
		tli, start, wal := readWAL(b, dir, *limitFlag)
		var costs *Costs
		if *fieldFlag {
			costs = new(Costs)
		}
		sealed := roundTrip(b, tli, start, wal, nil, costs)
		best := time.Hour
		for range *roundFlag - 1 {
			again := roundTrip(b, tli, start, wal, nil, nil)
			sealed.encode, sealed.decode = min(sealed.encode, again.encode), min(sealed.decode, again.decode)
		}
		live := sealed
		if *liveFlag {
			live = roundTrip(b, tli, start, wal, commitEnds(wal, start), nil)
		}
		mb := float64(len(wal)) / 1e6
		line := fmt.Sprintf("%-16s %9d  sealed %8d %6.2fx  live %8d +%6d frames %6.2fx  enc %5.1f dec %5.1f MB/s", filepath.Base(dir),
			len(wal), sealed.payload, float64(len(wal))/float64(sealed.payload), live.payload, live.frames,
			float64(len(wal))/float64(live.payload+2*live.frames), mb/sealed.encode.Seconds(), mb/sealed.decode.Seconds())
		if *peersFlag {
			n := 0
			for range *roundFlag {
				var d time.Duration
				n, d = peer(b, "-3", wal)
				best = min(best, d)
			}
			line += fmt.Sprintf("  zstd -3 %d %.1f MB/s, encode+verify %.2fx decode %.2fx", n, mb/best.Seconds(),
				best.Seconds()/(sealed.encode+sealed.decode).Seconds(), best.Seconds()/sealed.decode.Seconds())
		}
		fmt.Println(line)
		if costs != nil {
			for i, name := range costs.Names() {
				if costs.Spent[i] > 0 {
					fmt.Printf("    %-22s %9d\n", name, costs.Spent[i]/256/8)
				}
			}
			for i, k := range costs.Kinds {
				if k.Spent > 2048*int64(sealed.payload)/100 {
					fmt.Printf("    rmgr %d info %02x: %7d records %9d bytes -> %8d\n", i>>4, i&15<<4, k.Records, k.Bytes, k.Spent/2048)
				}
			}
		}
	}
}

func peer(b *testing.B, args string, wal []byte) (int, time.Duration) {
	cmd := exec.Command("zstd", append(strings.Fields(args), "-T1", "-c", "-q")...)
	cmd.Stdin = bytes.NewReader(wal)
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	return len(out), cmd.ProcessState.UserTime()
}
