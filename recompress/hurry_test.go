package recompress

import (
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

// Codec auto goes over to zstd at the boundary after it is told to hurry, and back at the boundary after that is over. Nothing
// changes inside a window, and no other codec changes at all.
func TestHurryChangesTheCodecAtBoundaries(t *testing.T) {
	rnd := waltest.Random(t)
	for codec, want := range map[Codec][3]link.Codec{
		Auto:  {link.CodecModel, link.CodecZstd, link.CodecModel},
		Model: {link.CodecModel, link.CodecModel, link.CodecModel},
		Zstd:  {link.CodecZstd, link.CodecZstd, link.CodecZstd},
	} {
		w := mustWriter(t, Options{Codec: codec, ResetDistance: mib})
		r, err := NewReader(Options{ResetDistance: mib})
		if err != nil {
			t.Fatal(err)
		}
		wal := makeWAL(rnd, 3*mib)
		for at := 0; at < len(wal); at += 100_000 {
			switch at {
			case 500_000:
				w.Hurry(true)
			case 1_500_000:
				w.Hurry(false)
			}
			piece := wal[at:min(at+100_000, len(wal))]
			err := w.Write(1, 0x1000000+protocol.LSN(at), piece, func(f *link.Frame) error {
				window := int(f.Start-0x1000000) / mib
				if f.Codec != want[window] && f.Codec != link.CodecRaw {
					t.Errorf("%s: a frame of window %d is %s, want %s", codec, window, f.Codec, want[window])
				}
				out, err := r.Decode(nil, f)
				if err == nil && string(out) != string(wal[f.Start-0x1000000:f.End()-0x1000000]) {
					t.Errorf("%s: other WAL at %s", codec, f.Start)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
