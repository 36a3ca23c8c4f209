package wal_test

import (
	"bytes"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/wal"
)

// pg15 returns a builder with one record of 100 bytes at 0/100028, in pages of 1 kB.
func pg15() *builder {
	b := newBuilder(wal.PG15, 1<<10, mib, mib)
	b.record(simple(wal.RmgrHeap, 0, 100))
	return b
}

func heap(n int) *wal.Record { return simple(wal.RmgrHeap, 0, n) }

var irregularCases = []struct {
	name  string
	build func(b *builder)
	want  string
}{
	{"zeros behind the last record", func(b *builder) { b.zeros(b.start + 2500) }, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: record length
		raw 0/100400-0/100800 1024: page magic
		flushed raw 0/100800-0/1009C4 452: page magic`},
	{"old WAL behind the last record", func(b *builder) {
		old := newBuilder(wal.PG15, 1<<10, mib, 0)
		for range 10 {
			old.record(heap(200))
		}
		b.raw(old.out[b.pos-b.start:])
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: record length
		raw 0/100400-0/100800 1024: page address is not its position
		flushed raw 0/100800-0/100828 40: page address is not its position`},
	{"unknown version", func(b *builder) {
		b.record(heap(2000))
		for _, page := range []int{0, 1, 2} {
			b.out[page<<10] = 0xFF
		}
	}, `
		raw 0/100000-0/100400 1024: page magic
		raw 0/100400-0/100800 1024: page magic
		flushed raw 0/100800-0/100890 144: page magic`},
	{"garbage in the middle", func(b *builder) {
		b.record(heap(500))
		b.record(heap(1400)) // begins on the first page, ends on the third
		b.record(heap(100))
		for i := 1024; i < 2048; i++ {
			b.out[i] = byte(i * 31)
		}
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		record 0/100090-0/100288 500
		raw 0/100288-0/100400 376: page magic
		raw 0/100400-0/100800 1024: page magic
		page 0/100800-0/100818 24 tli 1
		fragment 0/100818-0/100830 24
		record 0/100830-0/100898 100`},
	{"garbage in a record header", func(b *builder) {
		b.record(heap(100))
		b.record(heap(900))
		b.record(heap(100))
		b.out[0x90+17] = 99 // rmgr of the second
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: unknown resource manager
		page 0/100400-0/100418 24 tli 1
		fragment 0/100418-0/100498 128
		record 0/100498-0/100500 100`},
	{"prev of another chain", func(b *builder) {
		b.last -= 8
		b.record(heap(100))
		b.record(heap(800))
		b.record(heap(100))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: xl_prev is not the record before
		page 0/100400-0/100418 24 tli 1
		fragment 0/100418-0/100430 24
		record 0/100430-0/100498 100`},
	{"header over a page end that is wrong", func(b *builder) {
		b.record(heap(1024 - 0x90 - 8))
		b.record(heap(200)) // its length is on the first page, the rest is not
		b.record(heap(100))
		b.out[1024+24+9] = 99 // rmgr
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		record 0/100090-0/1003F8 872
		page 0/100400-0/100418 24 tli 1
		raw 0/1003F8-0/100428 24: unknown resource manager
		flushed raw 0/100428-0/100540 280: unknown resource manager`},
	{"padding that is not zero", func(b *builder) {
		b.record(heap(99))
		b.out[len(b.out)-1] = 1
		b.record(heap(100))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/1000F8 104: padding is not zero
		record 0/1000F8-0/100160 100`},
	{"record that does not go on", func(b *builder) {
		b.record(heap(1000))
		b.out = b.out[:1024]
		b.pos = b.start + 1024
		b.last = b.start + 40
		b.record(heap(100))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: record does not go on on the next page
		page 0/100400-0/100418 24 tli 1
		record 0/100418-0/100480 100`},
	{"rest of another length", func(b *builder) {
		b.record(heap(1000))
		b.out[1024+16]++ // xlp_rem_len, of 120
		b.record(heap(100))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		raw 0/100090-0/100400 880: remaining length of a continued record
		page 0/100400-0/100418 24 tli 1
		fragment 0/100418-0/100498 128
		flushed raw 0/100498-0/1004F8 96: unknown resource manager`},
	{"record cut off by a crash", func(b *builder) {
		b.record(heap(3000))
		b.out = b.out[:2048] // two pages of it were written
		b.pos = b.start + 2048
		b.last, b.flags = b.start+40, wal.OverwroteContrecord
		b.record(simple(wal.RmgrXLOG, 0xD0, 42))
		b.record(heap(100))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		page 0/100400-0/100418 24 tli 1
		aborted 0/100090-0/100800 1880
		page 0/100800-0/100818 24 tli 1
		record 0/100818-0/100848 42
		record 0/100848-0/1008B0 100`},
	{"timelines", func(b *builder) {
		b.timeline = 3
		b.record(heap(1000))
		b.timeline = 2
		b.record(heap(1000))
		b.record(heap(1000))
	}, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		page 0/100400-0/100418 24 tli 3 new
		record 0/100090-0/100490 1000
		raw 0/100490-0/100800 880: timeline went back
		raw 0/100800-0/100C00 1024: timeline went back
		page 0/100C00-0/100C18 24 tli 2
		fragment 0/100C18-0/100C90 120`},
}

// TestWalkerIrregular: what is in WAL beside records, each with the exact events.
func TestWalkerIrregular(t *testing.T) {
	for _, c := range irregularCases {
		t.Run(c.name, func(t *testing.T) {
			b := pg15()
			c.build(b)
			check(t, walkAll(t, b.start, b.options(), b.out, 5), c.want)
		})
	}
}

// TestWalkerSwitch: the three places where a SWITCH can end, and zeros that are none.
func TestWalkerSwitch(t *testing.T) {
	const end = 2 * mib
	near := func(before int) *builder { // a builder whose next record starts that many bytes before the segment's end
		b := newBuilder(wal.PG18, 1<<10, mib, end-1<<10)
		b.record(heap(1<<10 - wal.ShortHeaderBytes - before))
		return b
	}
	t.Run("at the end of the segment", func(t *testing.T) {
		b := near(24)
		b.record(switchRecord())
		b.record(heap(32))
		check(t, walkAll(t, b.start, b.options(), b.out, 1), `
			page 0/1FFC00-0/1FFC18 24 tli 1
			record 0/1FFC18-0/1FFFE8 976
			record 0/1FFFE8-0/200000 24
			page 0/200000-0/200028 40 tli 1
			record 0/200028-0/200048 32`)
	})
	t.Run("over the end of the segment", func(t *testing.T) {
		b := near(8)
		b.record(switchRecord())
		b.zeros(end + mib)
		b.record(heap(32))
		l := walkAll(t, b.start, b.options(), b.out, 1)
		n := len(l.lines)
		l.lines = append(l.lines[:6], l.lines[n-3:]...)
		check(t, l, `
			page 0/1FFC00-0/1FFC18 24 tli 1
			record 0/1FFC18-0/1FFFF8 992
			page 0/200000-0/200028 40 tli 1
			record 0/1FFFF8-0/200038 24
			switch tail 0/200038-0/200400 968
			switch tail 0/200400-0/200800 1024
			switch tail 0/2FFC00-0/300000 1024
			page 0/300000-0/300028 40 tli 1
			record 0/300028-0/300048 32`)
	})
	t.Run("at the end of a page, with bytes that are not zero", func(t *testing.T) {
		b := newBuilder(wal.PG18, 1<<10, mib, end-3<<10)
		b.record(heap(1<<10 - wal.ShortHeaderBytes - 24))
		b.record(switchRecord())
		b.zeros(end)
		b.out[2000] = 1
		b.record(heap(32))
		check(t, walkAll(t, b.start, b.options(), b.out, 1), `
			page 0/1FF400-0/1FF418 24 tli 1
			record 0/1FF418-0/1FF7E8 976
			record 0/1FF7E8-0/1FF800 24
			raw 0/1FF800-0/1FFC00 1024: bytes behind SWITCH are not zero
			switch tail 0/1FFC00-0/200000 1024
			page 0/200000-0/200028 40 tli 1
			record 0/200028-0/200048 32`)
	})
}

// TestWalkerLongRecord: a record above the limit comes page by page, and what follows is in step.
func TestWalkerLongRecord(t *testing.T) {
	b := pg15()
	b.record(heap(2500))
	b.record(heap(100))
	o := b.options()
	o.MaxRecordBytes = 2499
	check(t, walkAll(t, b.start, o, b.out, 3), `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		fragment 0/100090-0/1000A8 24
		fragment 0/1000A8-0/100400 856
		page 0/100400-0/100418 24 tli 1
		fragment 0/100418-0/100800 1000
		page 0/100800-0/100818 24 tli 1
		fragment 0/100818-0/100A88 624
		record 0/100A88-0/100AF0 100`)
	o.MaxRecordBytes = 2500
	check(t, walkAll(t, b.start, o, b.out, 3), `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		page 0/100400-0/100418 24 tli 1
		page 0/100800-0/100818 24 tli 1
		record 0/100090-0/100A88 2500
		record 0/100A88-0/100AF0 100`)
}

// TestWalkerFlush: what Flush hands out at each position, and that the walker stays in step.
func TestWalkerFlush(t *testing.T) {
	b := pg15()
	b.record(heap(1000))
	b.record(heap(100))
	for at := 1; at < len(b.out); at++ {
		first, rest := b.out[:at], b.out[at:]
		chunks := [][]byte{first, rest}
		l := walk(t, b.start, b.options(), b.out, func(int) int {
			n := len(chunks[0])
			chunks = chunks[1:]
			return n
		}, func() bool { return true })
		if !bytes.Equal(l.joined, b.out) {
			t.Fatalf("flush at %d: not the same bytes:\n%s", at, l)
		}
		last := l.lines[len(l.lines)-1]
		if lastStart := 0x490; at <= lastStart && last != "record 0/100490-0/1004F8 100" {
			t.Fatalf("flush at %d: out of step:\n%s", at, l)
		}
	}
	chunks := []int{0x100, 1024 + 10 - 0x100, len(b.out)}
	l := walk(t, b.start, b.options(), b.out, func(int) int {
		n := chunks[0]
		chunks = chunks[1:]
		return n
	}, func() bool { return true })
	check(t, l, `
		page 0/100000-0/100028 40 tli 1
		record 0/100028-0/100090 100
		flushed fragment 0/100090-0/100100 112
		flushed fragment 0/100100-0/100400 768
		flushed fragment 0/100400-0/10040A 10
		fragment 0/10040A-0/100418 14
		fragment 0/100418-0/100490 120
		record 0/100490-0/1004F8 100`)
}

// TestWalkerStream: pages that belong to another stream are raw.
func TestWalkerStream(t *testing.T) {
	b := pg15()
	b.record(heap(2000))
	for _, c := range []struct {
		stream wal.Stream
		rule   wal.Rule
	}{
		{wal.Stream{SystemID: 8}, wal.RuleSystemID},
		{wal.Stream{SegmentSize: 2 * mib}, wal.RuleLongHeader},
		{wal.Stream{PageSize: 2 << 10}, wal.RuleBlockSize},
		{wal.Stream{Version: wal.PG14}, wal.RuleMagic},
		{wal.Stream{Timeline: 2}, wal.RuleTimeline},
	} {
		o := wal.Options{Stream: c.stream}
		if o.PageSize == 0 {
			o.PageSize = uint32(b.pageSize)
		}
		if o.SegmentSize == 0 {
			o.SegmentSize = uint32(b.segment)
		}
		w := wal.NewWalker(b.start, o)
		if err := w.Feed(b.out); err != nil {
			t.Fatal(err)
		}
		ev, ok := w.Next()
		if !ok || ev.Kind != wal.KindRaw || ev.Rule != c.rule || ev.End != b.start+protocol.LSN(o.PageSize) {
			t.Errorf("%+v: %+v, want a raw page for %s", c.stream, ev, c.rule)
		}
	}
}
