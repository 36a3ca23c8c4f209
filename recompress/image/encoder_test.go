package image_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"

	"walproxy/recompress/image"
	"walproxy/recompress/image/internal/corpus"
)

func images(t testing.TB) []corpus.Image {
	t.Helper()
	images, err := corpus.Images()
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// TestServerBytes runs each image's profile over its content and wants the bytes the server or library stored, or its choice not to.
func TestServerBytes(t *testing.T) {
	var e image.Encoder
	seen := map[image.Profile]int{}
	for i, want := range images(t) {
		stored, compressed, err := e.Store([]byte("prefix"), want.Profile, want.Raw, want.Hole)
		if err != nil {
			t.Fatalf("image %d, %v: %v", i, want.Profile, err)
		}
		if !bytes.HasPrefix(stored, []byte("prefix")) {
			t.Fatalf("image %d, %v: what dst held is gone", i, want.Profile)
		}
		stored = stored[len("prefix"):]
		if compressed == want.Plain {
			t.Errorf("image %d, %v: compressed is %v, the server said %v", i, want.Profile, compressed, !want.Plain)
			continue
		}
		expected := want.Stored
		if want.Plain {
			expected = want.Raw
		}
		if !bytes.Equal(stored, expected) {
			t.Errorf("image %d, %v: stored bytes differ from the server's", i, want.Profile)
		}
		seen[want.Profile]++
	}
	for p := image.PGLZSigned; p <= image.Zstd157; p++ {
		if seen[p] == 0 {
			t.Errorf("no image of %v in the corpus", p)
		}
	}
}

// TestLibraryDigests compares the output for generated inputs with what the C libraries wrote for them: SHA-256 over each output's
// length (int32, little endian, -1 where the library refused) and bytes.
func TestLibraryDigests(t *testing.T) {
	const seed, count, most = 1, 1000, 16 << 10
	want := map[image.Profile]string{
		image.PGLZSigned:   "4b91d9ccebd71aeeadaf07a57a95ecdf5508f3759a30afd86a520d31534525dc", // libpgcommon 15.20, amd64
		image.PGLZUnsigned: "f4bf4d6998ec93070bd576d5f3082e5e29a33768840bdad7271fb03dc0168ff1", // libpgcommon 15.20, arm64
		image.LZ4Block:     "9bd231b368a958ff1e85ca038a86adeffd462879cdadd76f4f088c9f1c958d96", // liblz4 1.9.4
		image.Zstd144:      "be3a065283824c70d9bffbd48e3ac8c4d4afb2a6e52333b35af6016bd06e3b23", // libzstd 1.4.4
		image.Zstd148:      "2ea02051f2865f055d653a890d851d5d24c93d1671abec4c0fb8779861bcab2b", // libzstd 1.5.0
		image.Zstd151:      "3c222022881f93d874168c54dc0e192b9c20fce4388cd7e4333bfaec436c16c2", // libzstd 1.5.4
		image.Zstd157:      "e2d6ff633b7316b51b5225270c32f3f745db3b2c2ffbc9ac3061843ca2d3aff3", // libzstd 1.5.7
	}
	inputs := images(t)
	for p, digest := range want {
		t.Run(p.String(), func(t *testing.T) {
			var e image.Encoder
			h := sha256.New()
			var out []byte
			for raw := range corpus.Inputs(inputs, seed, count, most) {
				var err error
				out, err = e.Append(out[:0], p, raw)
				length := int32(len(out))
				switch {
				case errors.Is(err, image.ErrRefused):
					length = -1
				case err != nil:
					t.Fatal(err)
				}
				h.Write(binary.LittleEndian.AppendUint32(nil, uint32(length)))
				h.Write(out)
			}
			if got := hex.EncodeToString(h.Sum(nil)); got != digest {
				t.Errorf("digest %s, the library's is %s", got, digest)
			}
		})
	}
}

// TestKept checks the server's rule at its edges.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		stored, raw int
		hole, want  bool
	}{
		{7999, 8000, false, true},
		{8000, 8000, false, false},
		{7997, 8000, true, true},
		{7998, 8000, true, false},
	} {
		if got := image.Kept(c.stored, c.raw, c.hole); got != c.want {
			t.Errorf("Kept(%d, %d, %v) = %v", c.stored, c.raw, c.hole, got)
		}
	}
}

func TestEncoderErrors(t *testing.T) {
	var e image.Encoder
	dst := []byte("dst")
	for _, c := range []struct {
		name string
		p    image.Profile
		raw  []byte
		want error
	}{
		{"verbatim", image.Verbatim, make([]byte, 100), image.ErrProfile},
		{"unknown", 200, make([]byte, 100), image.ErrProfile},
		{"too short for pglz", image.PGLZSigned, make([]byte, 31), image.ErrRefused},
	} {
		got, err := e.Append(dst, c.p, c.raw)
		if !errors.Is(err, c.want) || string(got) != "dst" {
			t.Errorf("%s: %q, %v; want dst as it was and %v", c.name, got, err, c.want)
		}
	}
	for p := image.PGLZSigned; p <= image.Zstd157; p++ {
		got, err := e.Append(dst, p, make([]byte, image.MaxRawBytes+1))
		if err == nil || string(got) != "dst" {
			t.Errorf("%v takes an image above the limit", p)
		}
	}
}
