package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"walproxy/protocol/wal"
)

// costs adds up what a codec spent on each kind of content, in 1/256 bit. Not safe for concurrent use.
type costs struct {
	spent  map[kindKey]int64
	record wal.Record
	pages  pageSorter
}

// observe is a recompress.CostObserver. Records and images are told apart as kindCounter does.
func (c *costs) observe(record []byte, magic uint16, spent int64, images []int64) {
	v := wal.VersionOf(magic)
	k := kindKey{event: wal.KindRecord, version: v}
	if err := wal.DecodeUnchecked(record, wal.Format{Version: v}, &c.record); err == nil {
		k.rmgr, k.info = c.record.Rmgr, c.record.Info&0xF0
		for i := range c.record.Blocks {
			if b := &c.record.Blocks[i]; b.HasImage() && len(images) > 0 {
				c.spent[kindKey{image: true, page: c.pages.kind(b, v)}] += images[0]
				images = images[1:]
			}
		}
	} else if h, err := wal.ParseHeader(record); err == nil {
		k.rmgr, k.info = h.Rmgr, h.Info&0xF0
	}
	for _, n := range images {
		spent += n
	}
	c.spent[k] += spent
}

// RecordKind names the records of an operation: "Heap/INSERT".
func RecordKind(v wal.Version, rmgr wal.Rmgr, info uint8) string {
	return rmgr.String() + "/" + wal.Operation(v, rmgr, info)
}

// ImageKind names the images of a kind of page: heap, btree, hash, gist, spgist, gin, brin, bloom, sequence, free space map,
// visibility map, unknown.
func ImageKind(page string) string { return "page image/" + page }

// kindHeaders is what a node stores beside the content of the WAL.
const kindHeaders = "frame headers and unattributed"

// addCosts adds what a worker's codec spent.
func (t *tally) addCosts(c *costs) {
	if c == nil || len(c.spent) == 0 {
		return
	}
	if t.costs == nil {
		t.costs = make(map[string]float64)
	}
	for k, n := range c.spent {
		t.costs[k.name()] += float64(n) / (8 * 256)
	}
}

// kindKey is a kind without its name.
type kindKey struct {
	event   wal.Kind
	image   bool
	page    pageKind // image
	version wal.Version
	rmgr    wal.Rmgr
	info    uint8
}

func (k kindKey) name() string {
	switch {
	case k.image:
		return ImageKind(pageNames[k.page])
	case k.event == wal.KindRecord:
		return RecordKind(k.version, k.rmgr, k.info)
	case k.event == wal.KindPage:
		return "page header"
	case k.event == wal.KindFragment:
		return "part of a record"
	case k.event == wal.KindRaw:
		return "not WAL"
	}
	return k.event.String()
}

type count struct{ count, bytes int64 }

// kindCounter adds up the content of WAL by kind. Every byte is counted once: a record without its page images, padding
// included, and each image by itself.
type kindCounter struct {
	counts map[kindKey]count
	record wal.Record
	pages  pageSorter
}

func (c *kindCounter) add(k kindKey, bytes int64) {
	n := c.counts[k]
	c.counts[k] = count{n.count + 1, n.bytes + bytes}
}

func (c *kindCounter) event(ev *wal.Event) {
	k := kindKey{event: ev.Kind}
	bytes := int64(len(ev.Data))
	if ev.Kind == wal.KindRecord {
		bytes = (bytes + 7) &^ 7
		if err := wal.DecodeUnchecked(ev.Data, wal.Format{Version: ev.Version}, &c.record); err == nil {
			k.version, k.rmgr, k.info = ev.Version, c.record.Rmgr, c.record.Info&0xF0
			bytes -= c.images(ev.Version)
		} else if h, err := wal.ParseHeader(ev.Data); err == nil { // a record that its resource manager understands nevertheless
			k.version, k.rmgr, k.info = ev.Version, h.Rmgr, h.Info&0xF0
		}
	}
	c.add(k, bytes)
}

// images counts the page images of the record and returns how many bytes they take.
func (c *kindCounter) images(v wal.Version) (bytes int64) {
	for i := range c.record.Blocks {
		if b := &c.record.Blocks[i]; b.HasImage() {
			c.add(kindKey{image: true, page: c.pages.kind(b, v)}, int64(len(b.Image)))
			bytes += int64(len(b.Image))
		}
	}
	return bytes
}

// walkBytes is how much WAL is read at a time.
const walkBytes = 1 << 20

// walk counts a stream.
func (c *kindCounter) walk(ctx context.Context, s *stream) error {
	walker := wal.NewWalker(s.start, s.walOptions())
	chunk := make([]byte, min(walkBytes, s.bytes()))
	var err error
	s.windows(walkBytes, func(w window) bool {
		if err = context.Cause(ctx); err != nil {
			return false
		}
		if err = s.readAt(chunk[:w.bytes], w.start); err != nil {
			return false
		}
		if err = walker.Feed(chunk[:w.bytes]); err != nil {
			err = fmt.Errorf("walk WAL at %s: %w", w.start, err)
			return false
		}
		for ev, ok := walker.Next(); ok; ev, ok = walker.Next() {
			c.event(ev)
		}
		return true
	})
	for ev, ok := walker.Flush(); ok; ev, ok = walker.Flush() {
		c.event(ev)
	}
	return err
}

// countKinds returns the kinds of content of the streams, with what the codec spent on them according to t.
func countKinds(ctx context.Context, streams []stream, t *tally) ([]Kind, error) {
	c := kindCounter{counts: make(map[kindKey]count)}
	for i := range streams {
		if err := c.walk(ctx, &streams[i]); err != nil {
			return nil, err
		}
	}
	byName := make(map[string]*Kind)
	for k, n := range c.counts {
		name := k.name()
		if byName[name] == nil {
			byName[name] = &Kind{Kind: name}
		}
		byName[name].add(Kind{Count: n.count, RawBytes: n.bytes})
	}
	if t.costs != nil {
		addEncoded(byName, t)
	}
	kinds := make([]Kind, 0, len(byName))
	for _, k := range byName {
		kinds = append(kinds, *k)
	}
	sortKinds(kinds)
	return kinds, nil
}

// addEncoded gives every kind its encoded bytes; what the codec does not account for is a kind of its own.
func addEncoded(byName map[string]*Kind, t *tally) {
	rest := t.encoded
	for name, cost := range t.costs {
		if byName[name] == nil {
			byName[name] = &Kind{Kind: name}
		}
		encoded := int64(cost + 0.5)
		byName[name].EncodedBytes = &encoded
		rest -= encoded
	}
	byName[kindHeaders] = &Kind{Kind: kindHeaders, EncodedBytes: &rest}
	for _, k := range byName {
		if k.EncodedBytes == nil {
			k.EncodedBytes = new(int64)
		}
	}
}

func sortKinds(kinds []Kind) {
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(b.RawBytes, a.RawBytes), cmp.Compare(a.Kind, b.Kind))
	})
}
