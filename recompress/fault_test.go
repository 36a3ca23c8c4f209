package recompress

import (
	"bytes"
	"errors"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/wal/waltest"
)

func wantUnseen(t *testing.T, r *Reader, f *link.Frame) {
	t.Helper()
	out, err := r.Decode([]byte("kept"), f)
	var unseen *link.UnseenStreamError
	if !errors.As(err, &unseen) || unseen.LSN != f.Start || unseen.Timeline != f.Timeline || string(out) != "kept" {
		t.Fatalf("frame at %s that continues a stream not seen: %q, %v", f.Start, out, err)
	}
}

// faulty is an encoder that goes wrong in the frames for which fault says so.
type faulty struct {
	encoder
	fault func(dst, wal []byte, real encoder) ([]byte, error)
}

func (e *faulty) Append(dst, wal []byte) ([]byte, error) { return e.fault(dst, wal, e.encoder) }

// Whatever an encoder does wrong, the frame leaves raw, the fault is counted, and the stream goes on behind it.
func TestFaultyEncoderIsCaught(t *testing.T) {
	faults := map[string]func(dst, wal []byte, real encoder) ([]byte, error){
		"error": func(dst, wal []byte, _ encoder) ([]byte, error) { return dst, errors.New("out of order") },
		"flipped bit": func(dst, wal []byte, real encoder) ([]byte, error) {
			out, err := real.Append(dst, wal)
			out[len(out)/2] ^= 4
			return out, err
		},
		"other WAL": func(dst, wal []byte, real encoder) ([]byte, error) {
			wal = bytes.Clone(wal)
			wal[len(wal)-1]++
			return real.Append(dst, wal)
		},
		"too little": func(dst, wal []byte, real encoder) ([]byte, error) { return real.Append(dst, wal[:len(wal)-1]) },
		"too much": func(dst, wal []byte, real encoder) ([]byte, error) {
			return real.Append(dst, append(bytes.Clone(wal), 7))
		},
		"nothing": func(dst, _ []byte, _ encoder) ([]byte, error) { return dst, nil },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) { testFault(t, fault) })
	}
}

func testFault(t *testing.T, fault func(dst, wal []byte, real encoder) ([]byte, error)) {
	r := waltest.Random(t)
	w, reader := mustWriter(t, Options{Codec: Zstd, ResetDistance: mib}), mustReader(t, Options{ResetDistance: mib})
	wal, calls := makeWAL(r, 200_000), 0
	w.best.encoder = &faulty{encoder: w.best.encoder, fault: func(dst, wal []byte, real encoder) ([]byte, error) {
		if calls++; calls%4 == 3 {
			return fault(dst, wal, real)
		}
		return real.Append(dst, wal)
	}}
	var frames []link.Frame
	for at := 0; at < len(wal); at += 10_000 {
		frames = append(frames, write(t, w, protocol.LSN(at), wal[at:at+10_000])...)
	}
	if got := decodeAll(t, reader, frames); !bytes.Equal(got, wal) {
		t.Fatal("the WAL came back changed")
	}
	s := w.Stats()
	if s.Mismatches < 5 || s.RawFrames != s.Mismatches || s.Frames != 20 {
		t.Errorf("stats %+v, want at least 5 mismatches of 20 frames, each of them raw", s)
	}
	for i := range frames[1:] {
		if frames[i].Codec == link.CodecRaw && frames[i+1].Continues {
			t.Errorf("frame %d continues a stream over a raw frame", i+1)
		}
	}
}

func TestRawFallback(t *testing.T) {
	r := waltest.Random(t)
	w := mustWriter(t, Options{Codec: Zstd})
	w.sorter.standing = false // what is made up may look like such a record
	frames := write(t, w, 0, makeWAL(r, 50_000))
	frames = append(frames, write(t, w, 50_000, noise(r, 20_000))...)
	frames = append(frames, write(t, w, 70_000, makeWAL(r, 50_000))...)
	frames = append(frames, write(t, w, 120_000, makeWAL(r, 50_000))...)
	frames = append(frames, write(t, w, 170_000, []byte{1})...)
	var got []string
	for _, f := range frames {
		kind := f.Codec.String()
		if f.Starts {
			kind += " starts"
		} else if f.Continues {
			kind += " continues"
		}
		got = append(got, kind)
	}
	want := []string{"zstd starts", "raw", "zstd starts", "zstd continues", "raw"}
	if len(got) != len(want) {
		t.Fatalf("frames %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("frames %q, want %q", got, want)
			break
		}
	}
	if s := w.Stats(); s.Mismatches != 0 || s.RawFrames != 2 {
		t.Errorf("stats %+v", s)
	}
}

// A frame that nobody took, a jump, another timeline and Reset each begin a new stream.
func TestNewStreams(t *testing.T) {
	r := waltest.Random(t)
	w := mustWriter(t, Options{Codec: Zstd})
	starts := func(what string, want bool, tli protocol.Timeline, start protocol.LSN) {
		t.Helper()
		err := w.Write(tli, start, makeWAL(r, 10_000), func(f *link.Frame) error {
			if f.Starts != want || f.Continues == want {
				t.Errorf("%s: starts %t, want %t", what, f.Starts, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	starts("first", true, 1, 1000)
	starts("next", false, 1, 11_000)
	starts("same again", true, 1, 11_000)
	starts("next", false, 1, 21_000)
	starts("other timeline", true, 2, 31_000)
	w.Reset()
	starts("reset", true, 2, 41_000)
	refused := errors.New("refused")
	if err := w.Write(2, 51_000, makeWAL(r, 10_000), func(*link.Frame) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("error of emit: %v", err)
	}
	starts("after a refused frame", true, 2, 51_000)
	if err := w.Write(1, ^protocol.LSN(0)-5, make([]byte, 100), nil); err == nil {
		t.Error("WAL beyond the largest LSN was taken")
	}
}

// A stream is followed frame by frame or not at all.
func TestUnseenStream(t *testing.T) {
	r := waltest.Random(t)
	a, b := mustWriter(t, Options{Codec: Zstd}), mustWriter(t, Options{Codec: Zstd})
	wal := makeWAL(r, 60_000)
	var fa, fb []link.Frame
	for at := 0; at < len(wal); at += 10_000 {
		fa = append(fa, write(t, a, protocol.LSN(at), wal[at:at+10_000])...)
	}
	fb = append(fb, write(t, b, 0, wal[:5000])...)
	fb = append(fb, write(t, b, 5000, wal[5000:10_000])...)
	reader := mustReader(t, Options{})
	wantUnseen(t, reader, &fa[1])
	decodeAll(t, reader, fa[:2])
	wantUnseen(t, reader, &fa[1]) // twice
	decodeAll(t, reader, fa[:2])
	wantUnseen(t, reader, &fa[3]) // one left out
	decodeAll(t, reader, fb)
	wantUnseen(t, reader, &fa[1]) // the right place in another stream
	decodeAll(t, reader, fa[:3])
	other := fa[3]
	other.Timeline = 2
	wantUnseen(t, reader, &other)
	if got := decodeAll(t, reader, fa); !bytes.Equal(got, wal) {
		t.Error("the reader does not recover at a stream's start")
	}
}

func TestRefusedOptions(t *testing.T) {
	for _, o := range []Options{{Level: 2}, {Level: -1}, {Codec: 9}, {ResetDistance: 3 * mib}, {ResetDistance: 128 * mib}, {ResetDistance: 4096}} {
		if _, err := NewWriter(o); err == nil {
			t.Errorf("writer with %+v", o)
		}
	}
	for name, want := range map[string]string{
		"": `unknown codec "": want auto, model, zstd, lz4 or none`,
	} {
		if _, err := ParseCodec(name); err == nil || err.Error() != want {
			t.Errorf("codec %q: %v", name, err)
		}
	}
	for _, name := range Codecs() {
		if c, err := ParseCodec(name); err != nil || c.String() != name {
			t.Errorf("codec %q is %s, %v", name, c, err)
		}
	}
}
