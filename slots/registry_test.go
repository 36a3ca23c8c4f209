package slots

import (
	"testing"

	"walproxy/protocol"
)

func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{"spool": "spool", " min ": "min", "any 2": "any 2", "any  1000": "any 1000", "none": "none",
		"consumer standby 1": "consumer standby 1", "any": "", "any 0": "", "any -1": "", "any 1001": "", "consumer": "", "consumer ": "",
		"Spool": "", "": "", "min 1": "", "all": ""} {
		got, err := ParseRule(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("rule %q: %v, %v; want %q", text, got, err, want)
		}
	}
	for _, c := range []struct {
		policy Policy
		good   bool
	}{
		{DefaultPolicy(), true},
		{Policy{Write: Rule{Kind: RuleSpool}, Flush: Rule{Kind: RuleNone}, Apply: Rule{Kind: RuleMin}}, true},
		{Policy{Write: Rule{Kind: RuleSpool}, Flush: Rule{Kind: RuleSpool}, Apply: Rule{Kind: RuleSpool}}, false},
		{Policy{Flush: Rule{Kind: RuleSpool}}, false},
	} {
		if err := c.policy.Validate(); (err == nil) != c.good {
			t.Errorf("policy %+v: %v", c.policy, err)
		}
	}
}

func reporterOf(t *testing.T, write, flush, apply string) (*Reporter, *Registry) {
	t.Helper()
	rule := func(text string) Rule {
		r, err := ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	registry := NewRegistry()
	return NewReporter(Policy{Write: rule(write), Flush: rule(flush), Apply: rule(apply)}, registry), registry
}

func expectStatus(t *testing.T, p *Reporter, own Own, write, flush, apply protocol.LSN) {
	t.Helper()
	if got := p.Status(own); got != (protocol.Status{Write: write, Flush: flush, Apply: apply}) {
		t.Fatalf("with %+v: got %+v, want write %s, flush %s, apply %s", own, got, write, flush, apply)
	}
}

func TestDefaultPolicyReportsTheSpoolAlone(t *testing.T) {
	registry := NewRegistry()
	p := NewReporter(DefaultPolicy(), registry)
	registry.Register(Info{Name: "x"}).Report(protocol.Status{Write: 900, Flush: 900, Apply: 900})
	expectStatus(t, p, Own{Written: 100, Flushed: 80}, 100, 80, 0)
}

func TestPolicyOverConsumers(t *testing.T) {
	own := Own{Written: 1000, Flushed: 900}
	min, minRegistry := reporterOf(t, "spool", "min", "min")
	expectStatus(t, min, own, 1000, 0, 0) // nobody there: nothing is promised
	a := minRegistry.Register(Info{Name: "a"})
	expectStatus(t, min, own, 1000, 0, 0) // connected, nothing reported
	a.Report(protocol.Status{Write: 700, Flush: 600, Apply: 500})
	expectStatus(t, min, own, 1000, 600, 500)
	b := minRegistry.Register(Info{Name: "b"})
	b.Report(protocol.Status{Write: 300, Flush: 200})
	expectStatus(t, min, own, 1000, 600, 500) // what was true stays; b does not replay
	a.Report(protocol.Status{Write: 950, Flush: 950, Apply: 950})
	expectStatus(t, min, own, 1000, 600, 950)
	b.Report(protocol.Status{Write: 950, Flush: 940})
	expectStatus(t, min, own, 1000, 900, 950) // not beyond what is durable here
	expectStatus(t, min, Own{Written: 2000, Flushed: 2000}, 2000, 940, 950)
	a.Close()
	b.Close()
	a.Close()
	expectStatus(t, min, Own{Written: 2000, Flushed: 2000}, 2000, 940, 950)
	if len(minRegistry.Consumers()) != 0 {
		t.Fatal("closed consumers are listed")
	}

	anyTwo, anyRegistry := reporterOf(t, "any 1", "any 2", "none")
	for i, flush := range []protocol.LSN{100, 300, 200} {
		anyRegistry.Register(Info{Name: "s"}).Report(protocol.Status{Write: flush + 1, Flush: flush, Apply: flush})
		expectStatus(t, anyTwo, own, []protocol.LSN{101, 301, 301}[i], []protocol.LSN{0, 100, 200}[i], 0)
	}

	named, namedRegistry := reporterOf(t, "spool", "consumer Main", "consumer main")
	namedRegistry.Register(Info{Name: "other"}).Report(protocol.Status{Flush: 800, Apply: 800})
	expectStatus(t, named, own, 1000, 0, 0)
	c := namedRegistry.Register(Info{Name: "MAIN"})
	c.Report(protocol.Status{Write: 5000, Flush: 5000, Apply: 5000}) // absurdly ahead
	expectStatus(t, named, own, 1000, 900, 1000)
	c.Report(protocol.Status{Flush: 10})
	expectStatus(t, named, Own{Written: 3000, Flushed: 3000}, 3000, 900, 1000)
}

// TestTimelineEndTakesBack: what was reported, or is held, beyond a switch point is other WAL than that of the next timeline.
func TestTimelineEndTakesBack(t *testing.T) {
	p, registry := reporterOf(t, "spool", "min", "min")
	a := registry.Register(Info{Name: "a", Timeline: 1})
	a.Report(protocol.Status{Write: 1000, Flush: 1000, Apply: 1000})
	expectStatus(t, p, Own{Written: 1000, Flushed: 1000}, 1000, 1000, 1000)
	registry.EndTimeline(1, 600)
	registry.EndTimeline(1, 600)
	expectStatus(t, p, Own{Written: 5000, Flushed: 5000}, 5000, 600, 600)
	a.Report(protocol.Status{Write: 2000, Flush: 2000, Apply: 2000}) // still of timeline 1
	expectStatus(t, p, Own{Written: 5000, Flushed: 5000}, 5000, 600, 600)
	a.Close()
	b := registry.Register(Info{Name: "a", Timeline: 2})
	b.Report(protocol.Status{Write: 700, Flush: 700, Apply: 650})
	expectStatus(t, p, Own{Written: 5000, Flushed: 5000}, 5000, 700, 650)
}

func TestChangedIsSignalled(t *testing.T) {
	registry := NewRegistry()
	signalled := func(what string, want bool, change func()) {
		t.Helper()
		wake := registry.Changed()
		change()
		select {
		case <-wake:
			if !want {
				t.Errorf("%s: signalled", what)
			}
		default:
			if want {
				t.Errorf("%s: not signalled", what)
			}
		}
	}
	var c *Consumer
	signalled("register", true, func() { c = registry.Register(Info{Name: "a"}) })
	signalled("report", true, func() { c.Report(protocol.Status{Flush: 1}) })
	signalled("the same report", false, func() { c.Report(protocol.Status{Flush: 1}) })
	signalled("feedback", true, func() { c.Feedback(protocol.HSFeedback{Xmin: 5}) })
	signalled("the same feedback", false, func() { c.Feedback(protocol.HSFeedback{Xmin: 5}) })
	signalled("close", true, func() { c.Close() })
	if state := registry.Register(Info{Name: "b", Start: 7}); state.registry.Consumers()[0].Sent != 7 {
		t.Error("a new consumer has not been sent what lies below its start")
	}
}

func TestFeedbackIsTheMinimum(t *testing.T) {
	registry := NewRegistry()
	expect := func(want protocol.HSFeedback, heard bool) {
		t.Helper()
		if got, ok := registry.Feedback(); got != want || ok != heard {
			t.Fatalf("got %+v, %v; want %+v, %v", got, ok, want, heard)
		}
	}
	a, b, c := registry.Register(Info{}), registry.Register(Info{}), registry.Register(Info{})
	expect(protocol.HSFeedback{}, false)
	a.Feedback(protocol.HSFeedback{})
	expect(protocol.HSFeedback{}, true)
	a.Feedback(protocol.HSFeedback{Xmin: 4294967290, XminEpoch: 0}) // before the wraparound: older
	b.Feedback(protocol.HSFeedback{Xmin: 10, XminEpoch: 1, CatalogXmin: 700, CatalogEpoch: 1})
	c.Feedback(protocol.HSFeedback{Xmin: 2, XminEpoch: 0}) // no transaction has this xid
	expect(protocol.HSFeedback{Xmin: 4294967290, CatalogXmin: 700, CatalogEpoch: 1}, true)
	a.Feedback(protocol.HSFeedback{Xmin: 20, XminEpoch: 1, CatalogXmin: 600, CatalogEpoch: 1})
	expect(protocol.HSFeedback{Xmin: 10, XminEpoch: 1, CatalogXmin: 600, CatalogEpoch: 1}, true)
	b.Close()
	expect(protocol.HSFeedback{Xmin: 20, XminEpoch: 1, CatalogXmin: 600, CatalogEpoch: 1}, true)
	a.Feedback(protocol.HSFeedback{})
	expect(protocol.HSFeedback{}, true)
}

func TestRetention(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		restart        protocol.LSN
		segment, reset uint32
		want           protocol.LSN
	}{{0x5300028, 16 * mib, 4 * mib, 0x5000000}, {0x5300028, mib, 4 * mib, 0x5000000}, {0x5700028, mib, 4 * mib, 0x5400000},
		{0x7700028, 64 * mib, 4 * mib, 0x4000000}, {0x47700028, 1024 * mib, 64 * mib, 0x40000000}, {0x5000000, mib, mib, 0x5000000}} {
		if got := RetainedFrom(c.restart, c.segment, c.reset); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	options := RetentionOptions{SegmentSize: 16 * mib, ResetDistance: 4 * mib, KeepBytes: 1 * mib}
	slots := []Slot{
		{Name: "gone", RestartLSN: 0x1000000, Invalidated: "wal_removed"},
		{Name: "new"},
		{Name: "unsaved", RestartLSN: 0x9400000, SavedLSN: 0x7000028},
	}
	consumers := []ConsumerState{
		{Info: Info{Name: "quick"}, Sent: 0x9900000, Write: 0x9900000, Flush: 0x9800000},
		{Info: Info{Peer: "192.0.2.7"}, Sent: 0x6100000, Flush: 0x9900000}, // sent again what it had
		{Info: Info{Name: "writer"}, Sent: 0x9900000, Write: 0x9500000},
	}
	keep, holds := Retention(slots, consumers, 0x9A00000, options)
	want := []Hold{
		{Slot: "gone", Reason: "invalidated (wal_removed): keeps nothing"},
		{Slot: "new", Reason: "no restart_lsn yet: keeps nothing"},
		{Slot: "unsaved", Needs: 0x7000028, RetainedFrom: 0x7000000,
			Reason: "restart_lsn is 0/9400000, but 0/7000028 is what was saved last; kept from 0/7000000, where its segment begins"},
		{Consumer: "quick", Needs: 0x9800000, RetainedFrom: 0x9000000,
			Reason: "has flushed WAL up to 0/9800000; kept from 0/9000000, where its segment begins"},
		{Consumer: "192.0.2.7", Needs: 0x6100000, RetainedFrom: 0x6000000,
			Reason: "was sent WAL up to 0/6100000; kept from 0/6000000, where its segment begins"},
		{Consumer: "writer", Needs: 0x9500000, RetainedFrom: 0x9000000,
			Reason: "has written WAL up to 0/9500000; kept from 0/9000000, where its segment begins"},
	}
	if keep != 0x6000000 || len(holds) != len(want) {
		t.Fatalf("keep from %s, holds %+v", keep, holds)
	}
	for i := range want {
		if holds[i] != want[i] {
			t.Errorf("hold %+v, want %+v", holds[i], want[i])
		}
	}
	options.SegmentSize, options.ResetDistance = 1*mib, 4*mib
	if _, holds := Retention([]Slot{{Name: "a", RestartLSN: 0x5700028}}, nil, 0x9A00000, options); holds[0].Reason !=
		"restart_lsn is 0/5700028; kept from 0/5400000, the reset boundary below it" {
		t.Errorf("reason: %s", holds[0].Reason)
	}
	options.Redo = 0x6400028
	if keep, _ := Retention(nil, nil, 0x9A00000, options); keep != 0x6400000 {
		t.Errorf("with a checkpoint's redo position: %s", keep)
	}
	options.Redo = 0
	if keep, _ := Retention(nil, nil, 0x9A00000, options); keep != 0x9800000 {
		t.Errorf("without holds, the newest segment and window: keep from %s", keep)
	}
	if keep, _ := Retention(nil, nil, 0x100, options); keep != 0 {
		t.Errorf("with more to keep than there is: keep from %s", keep)
	}
}

func BenchmarkReport(b *testing.B) {
	registry := NewRegistry()
	p := NewReporter(Policy{Write: Rule{Kind: RuleSpool}, Flush: Rule{Kind: RuleMin}, Apply: Rule{Kind: RuleAny, Count: 10}}, registry)
	consumers := make([]*Consumer, 100)
	for i := range consumers {
		consumers[i] = registry.Register(Info{Timeline: 1})
	}
	b.ReportAllocs()
	at := protocol.LSN(1)
	for b.Loop() {
		at++
		consumers[int(at)%100].Report(protocol.Status{Write: at, Flush: at, Apply: at})
		p.Status(Own{Written: at, Flushed: at})
	}
}
