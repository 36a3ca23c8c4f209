package pglz_test

import (
	"bytes"
	"errors"
	"testing"

	"walproxy/recompress/image"
	"walproxy/recompress/image/internal/corpus"
	"walproxy/recompress/image/pglz"
)

func images(t testing.TB) []corpus.Image {
	t.Helper()
	images, err := corpus.Images()
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// TestRoundTrip expands what it compressed, over all shapes of input and both kinds of char; one byte more or less is an error.
func TestRoundTrip(t *testing.T) {
	var e pglz.Encoder
	dst := make([]byte, pglz.MaxRawBytes+1)
	refused := 0
	for raw := range corpus.Inputs(images(t), 21, 600, pglz.MaxRawBytes) {
		for _, signed := range []bool{true, false} {
			out, ok, err := e.Append(nil, raw, signed)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				refused++
				continue
			}
			if len(out)*4 >= len(raw)*3 {
				t.Fatalf("%d bytes from %d: less than a quarter saved", len(out), len(raw))
			}
			if err := pglz.Decode(dst[:len(raw)], out); err != nil || !bytes.Equal(dst[:len(raw)], raw) {
				t.Fatalf("%d bytes do not come back: %v", len(raw), err)
			}
			for _, size := range []int{len(raw) - 1, len(raw) + 1} {
				if err := pglz.Decode(dst[:size], out); !errors.Is(err, pglz.ErrCorrupt) {
					t.Fatalf("%d bytes expanded to %d: %v", len(raw), size, err)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no input was refused")
	}
}

// TestRefusals lists what the server's strategy does not compress.
func TestRefusals(t *testing.T) {
	noise := make([]byte, 8000)
	x := uint32(1)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	lateMatch := append(bytes.Clone(noise[:1100]), make([]byte, 6900)...)
	earlyMatch := append(bytes.Clone(noise[:800]), make([]byte, 7200)...)
	var e pglz.Encoder
	for _, c := range []struct {
		name string
		raw  []byte
		ok   bool
	}{
		{"31 zeros", make([]byte, 31), false},
		{"32 zeros", make([]byte, 32), true},
		{"noise", noise, false},
		{"nothing found in the first KiB", lateMatch, false},
		{"something found in the first KiB", earlyMatch, true},
		{"empty", nil, false},
	} {
		prefix := []byte("prefix")
		out, ok, err := e.Append(prefix, c.raw, true)
		if ok != c.ok || err != nil || !bytes.HasPrefix(out, prefix) || !ok && len(out) != len(prefix) {
			t.Errorf("%s: ok %v, %d bytes, %v", c.name, ok, len(out), err)
		}
	}
	if _, _, err := e.Append(nil, make([]byte, pglz.MaxRawBytes+1), true); !errors.Is(err, pglz.ErrTooLarge) {
		t.Errorf("above the limit: %v", err)
	}
}

// TestForms lists data as the format writes it, and what the decoder must refuse.
func TestForms(t *testing.T) {
	for _, c := range []struct {
		name string
		src  string
		want string
		ok   bool
	}{
		{"literals", "\x00abc", "abc", true},
		{"match", "\x02a\x02\x01", "aaaaaa", true},
		{"long match", "\x02a\x0f\x01\x02", "aaaaaaaaaaaaaaaaaaaaa", true},
		{"cut match", "\x02a\x02", "aaaaaa", false},
		{"cut length", "\x02a\x0f\x01", "aaaaaaaaaaaaaaaaaaaaa", false},
		{"offset zero", "\x02a\x02\x00", "aaaaaa", false},
		{"offset before the start", "\x02a\x02\x02", "aaaaaa", false},
		{"match too long", "\x02a\x02\x01", "aaaaa", false},
		{"too short", "\x00abc", "abcd", false},
		{"trailing bytes", "\x00abcd", "abc", false},
		{"trailing control byte", "\x00abcdefgh\x00", "abcdefgh", false},
	} {
		dst := make([]byte, len(c.want))
		err := pglz.Decode(dst, []byte(c.src))
		if c.ok && (err != nil || string(dst) != c.want) {
			t.Errorf("%s: %q, %v", c.name, dst, err)
		}
		if !c.ok && !errors.Is(err, pglz.ErrCorrupt) {
			t.Errorf("%s: accepted as %q, %v", c.name, dst, err)
		}
	}
}

// FuzzRoundTrip compresses and expands any input.
func FuzzRoundTrip(f *testing.F) {
	for raw := range corpus.Inputs(images(f), 22, 32, 4096) {
		f.Add(raw, len(raw)%2 == 0)
	}
	var e pglz.Encoder
	f.Fuzz(func(t *testing.T, raw []byte, signed bool) {
		raw = raw[:min(len(raw), pglz.MaxRawBytes)]
		out, ok, err := e.Append(nil, raw, signed)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		dst := make([]byte, len(raw))
		if err := pglz.Decode(dst, out); err != nil || !bytes.Equal(dst, raw) {
			t.Fatalf("does not come back: %v", err)
		}
	})
}

// FuzzDecode expands any data into a slice with guards around it: only the slice is written.
func FuzzDecode(f *testing.F) {
	for i, im := range images(f) {
		if im.Profile == image.PGLZSigned && !im.Plain && i%4 == 0 {
			f.Add(im.Stored, uint16(len(im.Raw)))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte, size uint16) {
		const guard = 32
		whole := bytes.Repeat([]byte{0xA5}, int(size)+2*guard)
		dst := whole[guard : guard+int(size)]
		if err := pglz.Decode(dst, src); err != nil && !errors.Is(err, pglz.ErrCorrupt) {
			t.Fatalf("unclassified error %v", err)
		}
		for i := range guard {
			if whole[i] != 0xA5 || whole[len(whole)-1-i] != 0xA5 {
				t.Fatal("written outside the slice")
			}
		}
	})
}
