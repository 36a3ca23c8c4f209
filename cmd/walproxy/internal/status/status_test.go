package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata")

func sample() *Node {
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	seconds, caughtUp := 5400.0, 12.5
	return &Node{
		Time: at, Version: "v1", Cluster: Cluster{SystemID: "7302451234567890123", ServerVersion: "15.18", SegmentBytes: 16 << 20},
		Position: Position{Timeline: 1, Oldest: 0x3000000, Written: 0x9A00000, Flushed: 0x99FF000, Rate: 1 << 20},
		Upstream: Upstream{State: "streaming", Since: at.Add(-time.Hour), Peer: "10.0.0.1:5432", Link: true, Slot: "wp", End: 0x9A00100,
			LagBytes: 256, LastMessage: &at, LastError: "it went away", Write: 0x9A00000, Flush: 0x99FF000, RetainedBytes: 0xA00100},
		Spool: Spool{Bytes: 900 << 20, CapBytes: 1 << 30, Fill: 0.87890625, Alarm: true, Rate: 1e5, SecondsCap: &seconds, HeldBy: "slot a: restart_lsn is 0/3000028"},
		Consumers: []Consumer{
			{Name: "standby", Peer: "10.0.0.9:4711", PID: 7, Slot: "a", State: "catchup", Since: at, LastReply: &at, Timeline: 1, Sent: 0x9000000, Write: 0x8000000,
				Flush: 0x8000000, Apply: 0x8000000, LagBytes: 26 << 20, LagSeconds: 61.25, Rate: 3 << 20, CatchUp: 2 << 20, SecondsCaughtUp: &caughtUp,
				RetainedFrom: 0x8000000, Reason: "has flushed WAL up to 0/8000000"},
			{Name: "evil\tname\x1b[2J", Peer: "unix", PID: 8, State: "streaming", Since: at, Timeline: 1, Sent: 0x9A00000, CatchUp: -512},
		},
		Slots: []Slot{
			{Name: "a", Active: true, PID: 7, Consumer: "standby", RestartLSN: 0x3000028, Status: "reserved", RetainedFrom: 0x3000000, LagBytes: 0x6A00000 - 0x28,
				LagSeconds: 3600, RetainedBytes: 0x6A00000, RetainedUpstreamBytes: 0xA00100, Reason: "restart_lsn is 0/3000028; kept from 0/3000000, where its segment begins"},
			{Name: "b", Status: "invalidated", Invalidated: "wal_removed", Reason: "invalidated (wal_removed): keeps nothing"},
		},
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", file, err, got, want)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := sample().Write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/status.txt", out.Bytes())
	out.Reset()
	if err := (&Node{Upstream: Upstream{State: "waiting"}}).Write(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/nothing.txt", out.Bytes())
}

func TestJSON(t *testing.T) {
	content, err := json.MarshalIndent(sample(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/status.json", content)
	var back Node
	if err := json.Unmarshal(content, &back); err != nil || !reflect.DeepEqual(&back, sample()) {
		t.Errorf("comes back as %+v, %v", back, err)
	}
	for _, bad := range []string{`5`, `"x"`, `"1/2/3"`, `""`} {
		var l LSN
		if err := json.Unmarshal([]byte(bad), &l); err == nil {
			t.Errorf("%s is read as %s", bad, l)
		}
	}
}

func TestFetch(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	answer := func(w http.ResponseWriter, value any) { _ = json.NewEncoder(w).Encode(value) }
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, sample()) })
	mux.HandleFunc("GET /slots", func(w http.ResponseWriter, _ *http.Request) { answer(w, sample().Slots) })
	if got, err := Fetch(t.Context(), address); err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("%+v, %v", got, err)
	}
	_, port, _ := strings.Cut(address, ":")
	for _, anywhere := range []string{"0.0.0.0:" + port, ":" + port} { // what a node listens on
		if got, err := FetchSlots(t.Context(), anywhere); err != nil || len(got) != 2 {
			t.Errorf("%s: %+v, %v", anywhere, got, err)
		}
	}
	if reachable("[::1]:5") != "[::1]:5" || reachable("node:5") != "node:5" {
		t.Error("an address that can be reached was changed")
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	if _, err := Fetch(t.Context(), strings.TrimPrefix(other.URL, "http://")); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("an older node: %v", err)
	}
}

func TestWords(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", -3 << 20: "-3.0 MiB", 1 << 50: "1024.0 TiB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v: %q, want %q", bytes, got, want)
		}
	}
	for seconds, want := range map[float64]string{0: "0s", 61.4: "1m1s", -5: "0s", 1e300: "100 years"} {
		if got := duration(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}
