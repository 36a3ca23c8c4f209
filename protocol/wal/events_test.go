package wal_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// log is the events of a walk, as text, and what they join to.
type log struct {
	lines  []string
	data   [][]byte // of each event
	joined []byte
	held   int
}

func (l *log) String() string { return strings.Join(l.lines, "\n") }

// walk feeds data in chunks of the sizes that cut returns; flush, if not nil, is asked after each chunk whether to flush.
// At the end everything is flushed.
func walk(t testing.TB, start protocol.LSN, o wal.Options, data []byte, cut func(left int) int, flush func() bool) *log {
	t.Helper()
	l := &log{}
	w := wal.NewWalker(start, o)
	j := wal.NewJoiner(start, int(o.PageSize))
	add := func(ev *wal.Event, prefix string) {
		l.add(t, j, ev, prefix)
	}
	for rest := data; len(rest) > 0; {
		n := min(len(rest), max(1, cut(len(rest))))
		// The chunk is a copy that is spoilt afterwards: nothing may be read from it later.
		chunk := bytes.Clone(rest[:n])
		if err := w.Feed(chunk); err != nil {
			t.Fatal(err)
		}
		for ev, ok := w.Next(); ok; ev, ok = w.Next() {
			add(ev, "")
		}
		for i := range chunk {
			chunk[i] ^= 0x5A
		}
		rest = rest[n:]
		if flush != nil && flush() {
			for ev, ok := w.Flush(); ok; ev, ok = w.Flush() {
				add(ev, "flushed ")
			}
			if w.Held() != 0 {
				t.Fatalf("%d bytes held after a flush", w.Held())
			}
		}
	}
	l.held = w.Held()
	for ev, ok := w.Flush(); ok; ev, ok = w.Flush() {
		add(ev, "flushed ")
	}
	l.joined = j.Finish(l.joined)
	if want := start + protocol.LSN(len(data)); w.Position() != want {
		t.Fatalf("walker stands at %s, want %s", w.Position(), want)
	}
	return l
}

func (l *log) add(t testing.TB, j *wal.Joiner, ev *wal.Event, prefix string) {
	t.Helper()
	line := fmt.Sprintf("%s%s %s-%s %d", prefix, ev.Kind, ev.Start, ev.End, len(ev.Data))
	if ev.Rule != wal.RuleNone {
		line += ": " + ev.Rule.String()
	}
	if ev.Kind == wal.KindPage {
		line += fmt.Sprintf(" tli %d", ev.Page.Timeline)
		if ev.NewTimeline {
			line += " new"
		}
		if got := ev.Page.Append(nil); !bytes.Equal(got, ev.Data) {
			t.Fatalf("page header at %s: % x, appended again % x", ev.Start, ev.Data, got)
		}
	}
	l.lines = append(l.lines, line)
	l.data = append(l.data, bytes.Clone(ev.Data))
	var err error
	if l.joined, err = j.Append(l.joined, ev); err != nil {
		t.Fatalf("%v at %s; events so far:\n%s", err, line, l)
	}
}

func whole(left int) int { return left }

// walkAll walks data in one chunk, byte by byte, and in random chunks with and without flushes, and checks that all is there each time,
// that the events do not depend on the chunks, and returns them.
func walkAll(t testing.TB, start protocol.LSN, o wal.Options, data []byte, seed uint64) *log {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	want := walk(t, start, o, data, whole, nil)
	sizes := []int{8, 100, 5000, 30000}
	cuts := []func(int) int{
		func(int) int { return 1 },
		func(int) int { return 1 + rng.IntN(sizes[rng.IntN(len(sizes))]) },
		func(int) int { return 8 * (1 + rng.IntN(1000)) },
	}
	if len(data) > 1<<18 {
		cuts = cuts[1:]
	}
	if !bytes.Equal(want.joined, data) {
		t.Fatalf("seed %d: the events do not join to the WAL:\n%s", seed, want)
	}
	for i, cut := range cuts {
		got := walk(t, start, o, data, cut, nil)
		if got.String() != want.String() {
			t.Fatalf("seed %d: events depend on the chunks (%d); whole:\n%s\nin chunks:\n%s", seed, i, want, got)
		}
		for i := range want.data {
			if !bytes.Equal(got.data[i], want.data[i]) {
				t.Fatalf("seed %d: %s: data depends on the chunks", seed, want.lines[i])
			}
		}
		if !bytes.Equal(got.joined, data) {
			t.Fatalf("seed %d: the events in chunks (%d) do not join to the WAL", seed, i)
		}
		got = walk(t, start, o, data, cut, func() bool { return rng.IntN(3) == 0 })
		if !bytes.Equal(got.joined, data) {
			t.Fatalf("seed %d: the events with flushes (%d) do not join to the WAL", seed, i)
		}
	}
	return want
}

func check(t *testing.T, l *log, want string) {
	t.Helper()
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	if got := l.String(); got != strings.Join(lines, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(lines, "\n"))
	}
}
