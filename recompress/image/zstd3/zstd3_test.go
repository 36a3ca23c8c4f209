package zstd3_test

import (
	"bytes"
	"errors"
	"testing"

	"walproxy/recompress/image/internal/corpus"
	"walproxy/recompress/image/zstd3"
)

func images(t testing.TB) []corpus.Image {
	t.Helper()
	images, err := corpus.Images()
	if err != nil {
		t.Fatal(err)
	}
	return images
}

func decoder(t testing.TB) *zstd3.Decoder {
	t.Helper()
	d, err := zstd3.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// roundTrip compresses raw and expands it again. A frame with a stored block is valid but never in a WAL record, and refused.
func roundTrip(t *testing.T, e *zstd3.Encoder, d *zstd3.Decoder, raw []byte, p zstd3.Profile) {
	t.Helper()
	frame, err := e.Append(nil, raw, p)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, len(raw)+1)
	err = d.Decode(dst[:len(raw)], frame)
	if bytes.HasSuffix(frame, raw) && len(frame) >= len(raw)+9 {
		if !errors.Is(err, zstd3.ErrCorrupt) {
			t.Fatalf("%v: stored block of %d bytes: %v", p, len(raw), err)
		}
		return
	}
	if err != nil || !bytes.Equal(dst[:len(raw)], raw) {
		t.Fatalf("%v: %d bytes do not come back: %v", p, len(raw), err)
	}
	for _, size := range []int{len(raw) - 1, len(raw) + 1} {
		if err := d.Decode(dst[:size], frame); !errors.Is(err, zstd3.ErrCorrupt) {
			t.Fatalf("%v: a frame of %d bytes expanded to %d: %v", p, len(raw), size, err)
		}
	}
}

// TestRoundTrip runs over all shapes of input and all profiles.
func TestRoundTrip(t *testing.T) {
	e, d := new(zstd3.Encoder), decoder(t)
	for raw := range corpus.Inputs(images(t), 31, 400, zstd3.MaxRawBytes) {
		for p := range zstd3.Profiles {
			roundTrip(t, e, d, raw, p)
		}
	}
}

// TestLargest runs inputs of exactly the limit: literals that need the longest header, the most sequences, and a single run.
func TestLargest(t *testing.T) {
	// 16384 bytes without any repeat of four: frequent bytes by chance, never a match.
	literals := make([]byte, zstd3.MaxRawBytes)
	x := uint32(7)
	for i := range literals {
		x = x*1664525 + 1013904223
		literals[i] = byte(x>>28) * byte(x>>20&7)
	}
	// Matches of four bytes with one literal between.
	many := []byte("abcd")
	for i := 0; len(many) < zstd3.MaxRawBytes; i++ {
		many = append(append(many, byte(i*37)), many[(i*5)%4:(i*5)%4+4]...)
	}
	e, d := new(zstd3.Encoder), decoder(t)
	for _, raw := range [][]byte{literals, many[:zstd3.MaxRawBytes], make([]byte, zstd3.MaxRawBytes)} {
		for p := range zstd3.Profiles {
			roundTrip(t, e, d, raw, p)
		}
	}
}

func TestErrors(t *testing.T) {
	e := new(zstd3.Encoder)
	for _, c := range []struct {
		name string
		raw  []byte
		p    zstd3.Profile
		want error
	}{
		{"empty", nil, zstd3.V151, zstd3.ErrTooLarge},
		{"above the limit", make([]byte, zstd3.MaxRawBytes+1), zstd3.V151, zstd3.ErrTooLarge},
		{"unknown profile", make([]byte, 100), zstd3.Profiles, zstd3.ErrProfile},
	} {
		if _, err := e.Append(nil, c.raw, c.p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestRefusedFrames lists frames that are valid zstd or nearly so, but not of the kind a server writes.
func TestRefusedFrames(t *testing.T) {
	raw := bytes.Repeat([]byte("a page of a table "), 100)
	e, d := new(zstd3.Encoder), decoder(t)
	good, err := e.Append(nil, raw, zstd3.V151)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, frame := range map[string][]byte{
		"empty":                    nil,
		"magic only":               good[:4],
		"header only":              good[:7],
		"cut":                      good[:len(good)-1],
		"byte behind":              edit(func(b []byte) []byte { return append(b, 0) }),
		"two frames":               edit(func(b []byte) []byte { return append(b, b...) }),
		"skippable frame in front": edit(func(b []byte) []byte { return append([]byte("\x50\x2a\x4d\x18\x00\x00\x00\x00"), b...) }),
		"skippable frame behind":   edit(func(b []byte) []byte { return append(b, "\x50\x2a\x4d\x18\x00\x00\x00\x00"...) }),
		"checksum flag":            edit(func(b []byte) []byte { b[4] |= 4; return append(b, 0, 0, 0, 0) }),
		"dictionary flag":          edit(func(b []byte) []byte { b[4] |= 1; return b }),
		"not the last block":       edit(func(b []byte) []byte { b[7] &^= 1; return b }),
		"block too long":           edit(func(b []byte) []byte { b[8]++; return b }),
		"other content size":       edit(func(b []byte) []byte { b[5]++; return b }),
	} {
		if err := d.Decode(make([]byte, len(raw)), frame); !errors.Is(err, zstd3.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := d.Decode(make([]byte, len(raw)), good); err != nil {
		t.Errorf("the frame itself, after all that: %v", err)
	}
}

// FuzzRoundTrip compresses and expands any input with any profile.
func FuzzRoundTrip(f *testing.F) {
	for raw := range corpus.Inputs(images(f), 32, 32, 4096) {
		f.Add(raw, uint8(len(raw)))
	}
	e, d := new(zstd3.Encoder), decoder(f)
	f.Fuzz(func(t *testing.T, raw []byte, p uint8) {
		if raw = raw[:min(len(raw), zstd3.MaxRawBytes)]; len(raw) > 0 {
			roundTrip(t, e, d, raw, zstd3.Profile(p)%zstd3.Profiles)
		}
	})
}

// FuzzDecode expands any frame into a slice with guards around it: only the slice is written.
func FuzzDecode(f *testing.F) {
	for i, im := range images(f) {
		if im.Profile.Method().String() == "zstd" && !im.Plain && i%4 == 0 {
			f.Add(im.Stored, uint16(len(im.Raw)))
		}
	}
	d := decoder(f)
	f.Fuzz(func(t *testing.T, frame []byte, size uint16) {
		const guard = 32
		whole := bytes.Repeat([]byte{0xA5}, int(size)+2*guard)
		dst := whole[guard : guard+int(size)]
		if err := d.Decode(dst, frame); err != nil && !errors.Is(err, zstd3.ErrCorrupt) {
			t.Fatalf("unclassified error %v", err)
		}
		for i := range guard {
			if whole[i] != 0xA5 || whole[len(whole)-1-i] != 0xA5 {
				t.Fatal("written outside the slice")
			}
		}
	})
}
