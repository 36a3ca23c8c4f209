package zstd

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// pieces returns text in pieces of growing length, the last above a zstd block.
func pieces() (all []byte, cut [][]byte) {
	for n := 1; n < 200_000; n = n*3 + 1 {
		from := len(all)
		for len(all) < from+n {
			all = fmt.Appendf(all, "tuple %d;", len(all)*7919%10007)
		}
		cut = append(cut, all[from:len(all):len(all)])
	}
	return all, cut
}

// The payloads of a stream, one after the other, and an empty last block are a zstd frame for any decoder: no content size, no
// checksum, no dictionary, the window asked for.
func TestPayloadsAreOneZstdFrame(t *testing.T) {
	all, cut := pieces()
	for _, level := range Levels {
		for _, window := range []uint32{1 << 20, 64 << 20} {
			e, err := NewEncoder(level, window)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				e.Begin(1, 0)
				var stream []byte
				for _, p := range cut {
					if stream, err = e.Append(stream, p); err != nil {
						t.Fatal(err)
					}
				}
				var h zstd.Header
				if err := h.Decode(stream); err != nil || h.WindowSize != uint64(min(window, MaxWindowBytes)) || h.HasFCS || h.HasCheckSum || h.DictionaryID != 0 {
					t.Errorf("level %d: header %+v, %v", level, h, err)
				}
				d, err := zstd.NewReader(nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := d.DecodeAll(append(stream, 1, 0, 0), nil)
				d.Close()
				if err != nil || !bytes.Equal(got, all) {
					t.Errorf("level %d: %d bytes of %d, %v", level, len(got), len(all), err)
				}
			}
		}
	}
}

// Every payload yields its piece at once, without the ones behind it; what a reader asks beyond it is an error, not a wait.
func TestPieceByPiece(t *testing.T) {
	_, cut := pieces()
	e, err := NewEncoder(DefaultLevel, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	e.Begin(1, 0)
	if err := d.Begin(1, 0); err != nil {
		t.Fatal(err)
	}
	for i, p := range cut {
		payload, err := e.Append([]byte("kept"), p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Append([]byte("kept"), payload[4:], len(p))
		if err != nil || string(got[:4]) != "kept" || !bytes.Equal(got[4:], p) {
			t.Fatalf("piece %d of %d bytes: %d bytes, %v", i, len(p), len(got)-4, err)
		}
	}
	payload, err := e.Append(nil, cut[3])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Append(nil, payload, len(cut[3])+1); !errors.Is(err, errEndsEarly) {
		t.Errorf("one byte more than there is: %v", err)
	}
	if _, err := NewEncoder(2, 1<<20); err == nil {
		t.Error("level 2 was taken")
	}
}
