package lz4_test

import (
	"bytes"
	"errors"
	"testing"

	"walproxy/recompress/image"
	"walproxy/recompress/image/internal/corpus"
	"walproxy/recompress/image/lz4"
)

func images(t testing.TB) []corpus.Image {
	t.Helper()
	images, err := corpus.Images()
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// TestRoundTrip expands what it compressed, over all shapes of input, and one byte more or less is an error.
func TestRoundTrip(t *testing.T) {
	var e lz4.Encoder
	dst := make([]byte, lz4.MaxRawBytes+1)
	for raw := range corpus.Inputs(images(t), 11, 1000, lz4.MaxRawBytes) {
		block, err := e.Append(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := lz4.Decode(dst[:len(raw)], block); err != nil || !bytes.Equal(dst[:len(raw)], raw) {
			t.Fatalf("%d bytes do not come back: %v", len(raw), err)
		}
		for _, size := range []int{len(raw) - 1, len(raw) + 1} {
			if err := lz4.Decode(dst[:size], block); !errors.Is(err, lz4.ErrCorrupt) {
				t.Fatalf("a block of %d bytes expanded to %d: %v", len(raw), size, err)
			}
		}
	}
}

// TestBlocks lists blocks as the format writes them, and what the decoder must refuse.
func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		name  string
		block []byte
		want  string
		ok    bool
		size  int
	}{
		{"empty", []byte{0}, "", true, 0},
		{"literals", []byte("\x50hello"), "hello", true, 5},
		{"run", []byte("\x1fa\x01\x00\x00\x50aaaaa"), "aaaaaaaaaaaaaaaaaaaaaaaaa", true, 25},
		{"no token", nil, "", false, 0},
		{"cut literals", []byte("\x50hell"), "", false, 5},
		{"cut length", []byte("\xf0\xff\xff"), "", false, 500},
		{"cut offset", []byte("\x10a\x01"), "", false, 5},
		{"offset zero", []byte("\x10a\x00\x00\x50aaaaa"), "", false, 10},
		{"offset before the start", []byte("\x10a\x02\x00\x50aaaaa"), "", false, 10},
		{"ends with a match", []byte("\x10a\x01\x00"), "", false, 5},
		{"match too long", []byte("\x10a\x01\x00\x50aaaaa"), "", false, 4},
		{"trailing bytes", []byte("\x50helloworld"), "", false, 5},
	} {
		dst := make([]byte, c.size)
		err := lz4.Decode(dst, c.block)
		if c.ok && (err != nil || string(dst) != c.want) {
			t.Errorf("%s: %q, %v", c.name, dst, err)
		}
		if !c.ok && !errors.Is(err, lz4.ErrCorrupt) {
			t.Errorf("%s: accepted as %q, %v", c.name, dst, err)
		}
	}
}

func TestTooLarge(t *testing.T) {
	var e lz4.Encoder
	if _, err := e.Append(nil, make([]byte, lz4.MaxRawBytes+1)); !errors.Is(err, lz4.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// FuzzRoundTrip compresses and expands any input.
func FuzzRoundTrip(f *testing.F) {
	for raw := range corpus.Inputs(images(f), 12, 32, 4096) {
		f.Add(raw)
	}
	var e lz4.Encoder
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = raw[:min(len(raw), lz4.MaxRawBytes)]
		block, err := e.Append(nil, raw)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, len(raw))
		if err := lz4.Decode(dst, block); err != nil || !bytes.Equal(dst, raw) {
			t.Fatalf("does not come back: %v", err)
		}
	})
}

// FuzzDecode expands any block into a slice with guards around it: only the slice is written.
func FuzzDecode(f *testing.F) {
	for i, im := range images(f) {
		if im.Profile == image.LZ4Block && !im.Plain && i%4 == 0 {
			f.Add(im.Stored, uint16(len(im.Raw)))
		}
	}
	f.Fuzz(func(t *testing.T, block []byte, size uint16) {
		const guard = 32
		whole := bytes.Repeat([]byte{0xA5}, int(size)+2*guard)
		dst := whole[guard : guard+int(size)]
		if err := lz4.Decode(dst, block); err != nil && !errors.Is(err, lz4.ErrCorrupt) {
			t.Fatalf("unclassified error %v", err)
		}
		for i := range guard {
			if whole[i] != 0xA5 || whole[len(whole)-1-i] != 0xA5 {
				t.Fatal("written outside the slice")
			}
		}
	})
}
