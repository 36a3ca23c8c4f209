package link_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenFrames is a sequence with every form of header.
func goldenFrames() []link.Frame {
	lsn := protocol.LSN(0x1_7F3FFFF0)
	next := func(f link.Frame) link.Frame {
		f.Timeline, f.Start = 3, lsn
		f.Seal()
		lsn = f.End()
		return f
	}
	frames := []link.Frame{
		next(link.Frame{RawLen: 16, RawSum: link.Checksum([]byte("sixteen bytes of")), Payload: []byte("sixteen bytes of")}),
		next(link.Frame{RawLen: 300, RawSum: 0x01020304, Codec: link.CodecZstd, Starts: true, Payload: []byte{0xf0, 0xf1, 0xf2}}),
	}
	stream := frames[1].Sum
	frames = append(frames,
		next(link.Frame{RawLen: 2, RawSum: 0x05060708, Codec: link.CodecZstd, Continues: true, Stream: stream, Payload: []byte{0xe0}}))
	frames = append(frames,
		next(link.Frame{RawLen: 504, RawSum: 0x0d0e0f10, Codec: link.CodecZstd, Continues: true, Stream: stream, Payload: []byte{0xd0, 0xd1}}))
	lsn += 0x100 // a jump: the full header names the stream
	frames = append(frames,
		next(link.Frame{RawLen: 8, RawSum: 0x11121314, Codec: link.CodecZstd, Continues: true, Stream: stream, Payload: []byte{0xc0}}),
		next(link.Frame{RawLen: 20000, RawSum: 0x090a0b0c, Codec: link.CodecZstd, Continues: true, Stream: stream, Payload: make([]byte, 128)}))
	end, err := link.NewTimelineEnd(3, lsn, 5, []byte("3\t1/7F407FFF\tno reason\n"))
	if err != nil {
		panic(err)
	}
	return append(frames, end)
}

// goldenWindow is a window with every kind of entry, and a frame without one.
func goldenWindow() []link.Frame {
	lsn := protocol.LSN(0x1_7F400000)
	frame := func(rawLen uint32, codec link.Codec, stream uint32, payload ...byte) link.Frame {
		f := link.Frame{Timeline: 3, Start: lsn, RawLen: rawLen, RawSum: 0x01020304, Codec: codec, Payload: payload}
		f.Starts, f.Continues, f.Stream = codec != link.CodecRaw && stream == 0, stream != 0, stream
		f.Seal()
		lsn = f.End()
		return f
	}
	first := frame(0x3F000, link.CodecZstd, 0, 0xf0, 0xf1)
	frames := []link.Frame{first, frame(0x2000, link.CodecZstd, first.Sum, 0xe0), frame(0x100, link.CodecZstd, first.Sum, 0xe1),
		frame(4, link.CodecRaw, 0, 'W', 'A', 'L', '!')}
	end, err := link.NewTimelineEnd(3, 0x1_7F420000, 5, []byte("3\t1/7F420000\tno reason\n"))
	if err != nil {
		panic(err)
	}
	return append(frames, end)
}

// TestGolden holds encoders and FORMAT.md's fields against files that change only with the format version.
func TestGolden(t *testing.T) {
	var frames []byte
	var cursor link.Cursor
	for _, f := range goldenFrames() {
		frames = cursor.Append(frames, &f)
	}
	live := link.WindowHeader{
		Kind: link.WindowLive, SystemID: 7714025486940806050, Timeline: 3, SegmentSize: 16 << 20, WALBlockSize: 8192,
		ResetDistance: 4 << 20, Start: 0x1_7F3FFFF0,
	}
	sealed := live
	sealed.Start = 0x1_7F400000
	var builder link.WindowBuilder
	builder.Begin(nil, sealed)
	for _, f := range goldenWindow() {
		if err := builder.Add(&f); err != nil {
			t.Fatal(err)
		}
	}
	window, err := builder.Finish()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		encoded  []byte
		annotate func(*annotator)
	}{
		"frames": {frames, func(a *annotator) {
			for a.at < len(a.b) {
				a.frame()
			}
		}},
		"window-live":   {live.Append(nil), (*annotator).window},
		"window-sealed": {window, (*annotator).sealed},
		"hello-client": {link.ClientHello{Stream: 0xcafe, ResetDistance: 4 << 20, WindowBytes: 16 << 20}.Append(nil),
			func(a *annotator) { a.hello(false) }},
		"hello-server": {link.ServerHello{SystemID: 7714025486940806050, Timeline: 3, Start: 0x1_7F3FFFF0, ResetDistance: 4 << 20}.Append(nil),
			func(a *annotator) { a.hello(true) }},
		"ack": {link.AppendAck(nil, 0x0102030405060708), (*annotator).ack},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := &annotator{b: test.encoded}
			test.annotate(a)
			if a.at != len(test.encoded) {
				t.Fatalf("%d of %d bytes annotated", a.at, len(test.encoded))
			}
			path := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(a.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal([]byte(a.out.String()), want) {
				t.Errorf("the format has changed: raise its version\ngot:\n%s\nwant:\n%s", a.out.String(), want)
			}
		})
	}
}
