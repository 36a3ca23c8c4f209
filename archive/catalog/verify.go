package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// Finding is something that is wrong with an archive.
type Finding struct {
	Timeline protocol.Timeline // 0 for what has none
	From, To protocol.LSN      // WAL that is missing or cannot be read; both 0 where it is not about WAL
	Object   string            // name; empty for what is missing
	What     string
}

func (f Finding) String() string {
	text := ""
	if f.To != 0 {
		text = fmt.Sprintf("timeline %d, %s to %s: ", f.Timeline, f.From, f.To)
	}
	if f.Object != "" {
		text += f.Object + ": "
	}
	return text + f.What
}

// VerifyOptions of a verification.
type VerifyOptions struct {
	Progress func(done, total int64) // bytes of objects; nil: nobody looks
}

// Verify reads every object of the archive, decodes all of it and compares it with its checksums, and looks for WAL and histories
// that are missing. An error means that it could not look; what is wrong with the archive is in the findings.
func Verify(ctx context.Context, a *archive.Archive, c *Catalog, o VerifyOptions) ([]Finding, error) {
	v := verification{archive: a, progress: o.Progress}
	for _, l := range c.Timelines {
		for _, object := range l.Objects {
			v.total += object.Bytes
		}
	}
	v.histories(c)
	for _, l := range c.Timelines {
		for _, g := range l.Gaps {
			v.found = append(v.found, Finding{Timeline: l.Timeline, From: g.From, To: g.To, What: "missing"})
		}
		for i, object := range l.Objects {
			if err := v.object(ctx, object); err != nil {
				return v.found, err
			}
			if i > 0 {
				if err := v.overlap(ctx, l.Objects[:i], object); err != nil {
					return v.found, err
				}
			}
		}
	}
	return v.found, nil
}

// verification is the state of one Verify.
type verification struct {
	archive     *archive.Archive
	found       []Finding
	done, total int64
	progress    func(done, total int64)
}

// histories checks that each timeline's ancestry is there, and that they agree.
func (v *verification) histories(c *Catalog) {
	for _, b := range c.Broken {
		v.found = append(v.found, Finding{Timeline: b.Timeline, Object: archive.FileName(protocol.HistoryName(b.Timeline)), What: b.Err.Error()})
	}
	for _, l := range c.Timelines {
		broken := slices.ContainsFunc(c.Broken, func(b Broken) bool { return b.Timeline == l.Timeline })
		if !l.Known && !broken {
			v.found = append(v.found, Finding{Timeline: l.Timeline, Object: archive.FileName(protocol.HistoryName(l.Timeline)), What: "missing, though there is WAL of the timeline"})
		}
		for i, e := range l.History.Entries {
			parent := c.Of(e.Timeline)
			if parent == nil || !parent.Known || slices.Equal(parent.History.Entries, l.History.Entries[:i]) {
				continue
			}
			v.found = append(v.found, Finding{Timeline: l.Timeline, Object: archive.FileName(protocol.HistoryName(l.Timeline)),
				What: fmt.Sprintf("it does not agree with the history of timeline %d", e.Timeline)})
		}
	}
}

// object reads one object.
func (v *verification) object(ctx context.Context, o Object) error {
	at := o.Start
	h, err := v.archive.ReadObject(ctx, o.Span, func(lsn protocol.LSN, wal []byte) error {
		at = lsn + protocol.LSN(len(wal))
		return nil
	})
	if err == nil && h.Bytes != o.Bytes {
		err = v.longer(ctx, o, h)
	}
	v.done += o.Bytes
	if v.progress != nil {
		v.progress(v.done, v.total)
	}
	return v.note(ctx, o, at, err)
}

// longer returns an error if there are bytes behind the end of an object: a listing alone does not tell, where it counts what
// encryption adds.
func (v *verification) longer(ctx context.Context, o Object, h archive.Header) error {
	behind, err := v.archive.Store().Get(ctx, nil, o.Name(), h.Bytes, 1)
	if err == nil && len(behind) > 0 {
		err = &archive.CorruptError{Name: o.Name(), Err: fmt.Errorf("%d bytes, its header says %d", o.Bytes, h.Bytes)}
	}
	return err
}

// note makes a finding of what is wrong with an object; other errors are returned.
func (v *verification) note(ctx context.Context, o Object, at protocol.LSN, err error) error {
	var cluster *archive.IdentityError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, archive.ErrNotExist): // replaced by a larger one since it was listed, or deleted
		_, err := v.archive.Locate(ctx, o.Timeline, o.Start, nil)
		var gap *archive.GapError
		if err != nil && (errors.Is(err, archive.ErrNotExist) || errors.As(err, &gap)) {
			v.found = append(v.found, Finding{Timeline: o.Timeline, From: o.Start, To: o.End, Object: o.Name(), What: "it was deleted meanwhile"})
			return nil
		}
		return err
	case errors.Is(err, link.ErrCorrupt), errors.As(err, &cluster):
		if at >= o.End {
			at = o.Start
		}
		v.found = append(v.found, Finding{Timeline: o.Timeline, From: at, To: o.End, Object: o.Name(), What: err.Error()})
		return nil
	}
	return err
}

// overlap compares an object with the one before it that reaches furthest into it.
func (v *verification) overlap(ctx context.Context, before []Object, o Object) error {
	var other Object
	for _, b := range before {
		if b.End > o.Start && b.End > other.End {
			other = b
		}
	}
	if other.End == 0 {
		return nil
	}
	from, to := max(o.Start, other.Start), min(o.End, other.End)
	var sums [2]uint32
	for i, x := range []Object{other, o} {
		_, err := v.archive.ReadObject(ctx, x.Span, func(lsn protocol.LSN, wal []byte) error {
			end := lsn + protocol.LSN(len(wal))
			if begin, stop := max(lsn, from), min(end, to); begin < stop {
				sums[i] = crc32.Update(sums[i], castagnoli, wal[begin-lsn:stop-lsn])
			}
			return nil
		})
		if err != nil {
			return ignoreDamage(err) // it was found already
		}
	}
	if sums[0] != sums[1] {
		v.found = append(v.found, Finding{Timeline: o.Timeline, From: from, To: to, Object: o.Name(), What: "it holds other WAL there than " + other.Name()})
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func ignoreDamage(err error) error {
	var cluster *archive.IdentityError
	if errors.Is(err, link.ErrCorrupt) || errors.As(err, &cluster) || errors.Is(err, archive.ErrNotExist) {
		return nil
	}
	return err
}
