package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"walproxy/protocol"
)

func TestLSN(t *testing.T) {
	for text, want := range map[string]protocol.LSN{
		"0/0": 0, "0/1": 1, "16/B374D848": 0x16B374D848, "16/b374d848": 0x16B374D848, "FFFFFFFF/FFFFFFFF": 1<<64 - 1, "00000001/00000002": 1<<32 | 2,
	} {
		if got, err := protocol.ParseLSN(text); err != nil || got != want {
			t.Errorf("ParseLSN(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "0", "0/", "/0", "0/0 ", " 0/0", "0/0/0", "+0/0", "0/-1", "100000000/0", "0/100000000", "G/0", "0x1/0", "0/1\n"} {
		if got, err := protocol.ParseLSN(text); err == nil {
			t.Errorf("ParseLSN(%q) = %v, want an error", text, got)
		}
	}
	if got := protocol.LSN(0x16B374D848).String(); got != "16/B374D848" {
		t.Errorf("String: %s", got)
	}
	lsn := protocol.LSN(0x1234567)
	if lsn.Floor(8192) != 0x1234000 || lsn.Next(8192) != 0x1236000 || protocol.LSN(8192).Next(8192) != 16384 || protocol.LSN(8192).Floor(8192) != 8192 {
		t.Error("Floor or Next is wrong")
	}
}

func FuzzLSN(f *testing.F) {
	f.Add("16/B374D848")
	f.Add("0/")
	f.Fuzz(func(t *testing.T, text string) {
		lsn, err := protocol.ParseLSN(text)
		if err != nil {
			return
		}
		again, err := protocol.ParseLSN(lsn.String())
		if err != nil || again != lsn {
			t.Fatalf("%q is %v, which reads as %v, %v", text, lsn, again, err)
		}
		var high, low uint64
		if _, err := fmt.Sscanf(text, "%x/%x", &high, &low); err != nil || protocol.LSN(high<<32|low) != lsn {
			t.Fatalf("%q is %v", text, lsn)
		}
	})
}

func TestTimeline(t *testing.T) {
	for text, want := range map[string]protocol.Timeline{"1": 1, "2147483647": 1<<31 - 1, "007": 7} {
		if got, err := protocol.ParseTimeline(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "+1", "2147483648", "1 ", "x"} {
		if got, err := protocol.ParseTimeline(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

const history = "1\t0/3000000\tno recovery target specified\n\n# comment\n2\t0/5000028\tbefore \"x\"\n"

func TestHistory(t *testing.T) {
	h, err := protocol.ParseHistory(5, []byte(history))
	if err != nil {
		t.Fatal(err)
	}
	for tli, want := range map[protocol.Timeline]string{1: "0/3000000 2 true", 2: "0/5000028 5 true", 5: "0/0 0 false", 3: "0/0 0 false"} {
		end, next, ok := h.End(tli)
		if got := fmt.Sprint(end, next, ok); got != want {
			t.Errorf("End(%d) = %s, want %s", tli, got, want)
		}
		if h.Contains(tli) != (tli != 3) {
			t.Errorf("Contains(%d) = %v", tli, h.Contains(tli))
		}
	}
	for lsn, want := range map[protocol.LSN]protocol.Timeline{0: 1, 0x2ffffff: 1, 0x3000000: 2, 0x5000027: 2, 0x5000028: 5, 1 << 60: 5} {
		if got := h.At(lsn); got != want {
			t.Errorf("At(%s) = %d, want %d", lsn, got, want)
		}
	}
	if h.Begin() != 0x5000028 || (protocol.History{Timeline: 1}).Begin() != 0 {
		t.Error("Begin is wrong")
	}
	for name, content := range map[string]string{
		"not increasing": "2\t0/1\n2\t0/2\n", "too new": "5\t0/1\n", "no LSN": "1\n", "bad LSN": "1 0/x\n", "timeline 0": "0 0/1\n",
		"word": "x 0/1\n", "too long": strings.Repeat("#", protocol.MaxHistoryBytes+1),
	} {
		if got, err := protocol.ParseHistory(5, []byte(content)); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

func FuzzHistory(f *testing.F) {
	f.Add(uint32(5), []byte(history))
	f.Fuzz(func(t *testing.T, tli uint32, content []byte) {
		h, err := protocol.ParseHistory(protocol.Timeline(tli), content)
		if err != nil {
			return
		}
		var text strings.Builder
		last := protocol.Timeline(0)
		for _, e := range h.Entries {
			if e.Timeline <= last || e.Timeline >= h.Timeline {
				t.Fatalf("order of %v", h)
			}
			last = e.Timeline
			fmt.Fprintf(&text, "%d\t%s\treason\n", e.Timeline, e.End)
		}
		again, err := protocol.ParseHistory(h.Timeline, []byte(text.String()))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(h) {
			t.Fatalf("%v reads back as %v, %v", h, again, err)
		}
	})
}

func TestSegmentName(t *testing.T) {
	tests := []struct {
		tli  protocol.Timeline
		lsn  protocol.LSN
		size uint64
		name string
	}{
		{1, 0x1000000, 16 << 20, "000000010000000000000001"},
		{0xAB, 0x16B374D848, 16 << 20, "000000AB00000016000000B3"},
		{1, 0x16B374D848, 1 << 30, "000000010000001600000002"},
		{1, 0x16B374D848, 1 << 20, "000000010000001600000B37"},
	}
	for _, test := range tests {
		if got := protocol.SegmentName(test.tli, test.lsn, test.size); got != test.name {
			t.Errorf("got %s, want %s", got, test.name)
		}
		tli, lsn, err := protocol.ParseSegmentName(test.name, test.size)
		if err != nil || tli != test.tli || lsn != test.lsn.Floor(test.size) {
			t.Errorf("%s: %d %s %v", test.name, tli, lsn, err)
		}
	}
	for _, name := range []string{"", "00000001000000000000000", "0000000100000000000000011", "000000010000000000000001.partial",
		"000000000000000000000001", "000000010000000000000100", "00000001000000000000000g", "0000000100000000000000aa"} {
		if tli, lsn, err := protocol.ParseSegmentName(name, 16<<20); err == nil {
			t.Errorf("%q: %d %s, want an error", name, tli, lsn)
		}
	}
	if protocol.HistoryName(0x1F) != "0000001F.history" {
		t.Error("HistoryName is wrong")
	}
	for size, want := range map[uint64]bool{1 << 20: true, 1 << 30: true, 3 << 20: false, 1 << 19: false, 1 << 31: false, 0: false} {
		if protocol.ValidSegmentSize(size) != want {
			t.Errorf("ValidSegmentSize(%d) = %v", size, !want)
		}
	}
}

func FuzzSegmentName(f *testing.F) {
	f.Add("000000010000000000000001", uint8(4))
	f.Fuzz(func(t *testing.T, name string, shift uint8) {
		size := uint64(protocol.MinSegmentSize) << (shift % 11)
		tli, lsn, err := protocol.ParseSegmentName(name, size)
		if err == nil && protocol.SegmentName(tli, lsn, size) != name {
			t.Fatalf("%q of %d bytes is %d %s, which is %q", name, size, tli, lsn, protocol.SegmentName(tli, lsn, size))
		}
	})
}

func TestMajor(t *testing.T) {
	for version, want := range map[string]int{"15.18 (Debian 15.18-0+deb12u1)": 15, "18.4": 18, "18beta1": 18, "": 0, "devel": 0, "99999999999999999999": 0} {
		if got := (protocol.Identity{ServerVersion: version}).Major(); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}
