package wal_test

import (
	"bytes"
	"errors"
	"testing"

	"walproxy/protocol/wal"
)

func TestPageHeaderRoundTrip(t *testing.T) {
	for _, v := range formats {
		long := wal.PageHeader{
			Version: v, Flags: wal.LongHeader | wal.FirstIsContrecord, Timeline: 3, Addr: 0x12345678_9A000000, RemLen: 99, Unused: 5,
			SystemID: 7382719473829, SegmentSize: 1 << 24, PageSize: 8192,
		}
		short := long
		short.Flags, short.SystemID, short.SegmentSize, short.PageSize = wal.OverwroteContrecord, 0, 0, 0
		for _, want := range []wal.PageHeader{long, short} {
			b := want.Append([]byte("x"))[1:]
			got, n, err := wal.ParsePageHeader(append(b, 1, 2, 3))
			if err != nil || n != len(b) || n != want.Bytes() || got != want {
				t.Errorf("%+v, %d bytes, %v; want %+v", got, n, err, want)
			}
			if n := wal.PageHeaderBytes(append(b, 1), want.Addr); n != len(b) {
				t.Errorf("%+v looks like a header of %d bytes", want, n)
			}
			if n := wal.PageHeaderBytes(b, want.Addr+8192); n != 0 {
				t.Errorf("%+v looks like the header of another page", want)
			}
			for cut := range b {
				if n := wal.PageHeaderBytes(b[:cut], want.Addr); n != 0 {
					t.Errorf("%d bytes look like a header of %d", cut, n)
				}
				if _, _, err := wal.ParsePageHeader(b[:cut]); !errors.Is(err, wal.ErrShort) {
					t.Errorf("%d bytes: %v", cut, err)
				}
			}
		}
	}
}

// TestPageHeaderBytes: the layout, once, byte for byte, as a server of version 18 wrote it.
func TestPageHeaderBytes(t *testing.T) {
	b := []byte{
		0x18, 0xD1, 0x06, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x39, 0x30, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x01, 0x00, 0x20, 0x00, 0x00,
	}
	want := wal.PageHeader{
		Version: wal.PG18, Flags: wal.LongHeader | wal.BackupRemovable, Timeline: 1, Addr: 0x1000000,
		SystemID: 12345, SegmentSize: 16 << 20, PageSize: 8192,
	}
	got, _, err := wal.ParsePageHeader(b)
	if err != nil || got != want || !bytes.Equal(got.Append(nil), b) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPageHeaderUnknownVersion(t *testing.T) {
	for _, magic := range []uint16{0, 0xD101, 0xD119, 0x18D1 /* a big-endian host's */} {
		b := make([]byte, 40)
		b[0], b[1] = byte(magic), byte(magic>>8)
		_, _, err := wal.ParsePageHeader(b)
		var unknown *wal.VersionError
		if !errors.As(err, &unknown) || unknown.Magic != magic || errors.Is(err, wal.ErrInvalid) {
			t.Errorf("magic %04X: %v", magic, err)
		}
	}
	if v := wal.VersionOf(wal.PG17.Magic()); v != wal.PG17 || wal.Version(12).Magic() != 0 || wal.Version(19).Known() {
		t.Error(v)
	}
}

// TestPageHeaderRules: each check of the server's reader, broken once.
func TestPageHeaderRules(t *testing.T) {
	const addr = 32 << 20
	stream := wal.Stream{Version: wal.PG16, SystemID: 5, SegmentSize: 16 << 20, PageSize: 8192, Timeline: 2}
	good := wal.PageHeader{
		Version: wal.PG16, Flags: wal.LongHeader, Timeline: 2, Addr: addr, SystemID: 5, SegmentSize: 16 << 20, PageSize: 8192,
	}
	if err := good.Check(addr, &stream); err != nil {
		t.Error(err)
	}
	if err := good.Check(addr, &wal.Stream{}); err != nil {
		t.Error(err)
	}
	cases := map[wal.Rule]func(h *wal.PageHeader){
		wal.RuleMagic:       func(h *wal.PageHeader) { h.Version = wal.PG17 },
		wal.RulePageInfo:    func(h *wal.PageHeader) { h.Flags |= 16 },
		wal.RulePageAddr:    func(h *wal.PageHeader) { h.Addr -= 16 << 20 },
		wal.RuleLongHeader:  func(h *wal.PageHeader) { h.Flags = 0 },
		wal.RuleSystemID:    func(h *wal.PageHeader) { h.SystemID++ },
		wal.RuleSegmentSize: func(h *wal.PageHeader) { h.SegmentSize *= 2 },
		wal.RuleBlockSize:   func(h *wal.PageHeader) { h.PageSize *= 2 },
		wal.RuleTimeline:    func(h *wal.PageHeader) { h.Timeline-- },
	}
	for rule, edit := range cases {
		h := good
		edit(&h)
		var broken *wal.PageError
		err := h.Check(addr, &stream)
		if !errors.As(err, &broken) || broken.Rule != rule || broken.LSN != addr || !errors.Is(err, wal.ErrInvalid) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	late := good
	late.Addr += 8192
	var broken *wal.PageError
	if err := late.Check(addr+8192, &stream); !errors.As(err, &broken) || broken.Rule != wal.RuleLongHeader {
		t.Errorf("long header within a segment: %v", err)
	}
	late.Timeline, late.Flags = 3, 0
	if err := late.Check(addr+8192, &stream); err != nil {
		t.Errorf("next timeline: %v", err)
	}
}
