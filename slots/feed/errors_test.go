package feed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/spool"
)

// A frame that is as it was written, and yet cannot be decoded: the log gets the file, the position and what to do, consumers an
// error of the class of damage that names no file of this machine.
func TestSpoolThatCannotBeDecoded(t *testing.T) {
	f := openTest(t, t.TempDir())
	bad := link.Frame{
		Timeline: 1, Start: 3 * segment, RawLen: 1000, Codec: link.CodecZstd, Starts: true, RawSum: 7, Payload: []byte("this is no zstd stream"),
	}
	bad.Seal()
	if err := f.log.Append(&bad); err != nil {
		t.Fatal(err)
	}
	f = f.reopen()
	check := func(what string, err error, lsn protocol.LSN) {
		t.Helper()
		var damage *spool.CorruptError
		var read *ReadError
		if !errors.As(err, &damage) || !errors.As(err, &read) || !errors.Is(err, link.ErrCorrupt) {
			t.Fatalf("%s: got %v", what, err)
		}
		file := filepath.Join(f.dir, "spool", "00000001", fmt.Sprintf("%016X.win", 3*segment))
		if damage.File != file || damage.LSN != lsn || damage.Offset != link.WindowHeaderBytes {
			t.Errorf("%s: %+v", what, damage)
		}
		for _, want := range []string{file, lsn.String(), "walproxy inspect --check " + f.dir, "move this file and all later ones"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", what, want, err)
			}
		}
		public := read.Public()
		if text := public.Error() + public.Hint; public.Code != protocol.CodeDataCorrupted || strings.Contains(text, f.dir) || !strings.Contains(text, lsn.String()) {
			t.Errorf("%s: consumers see %q", what, text)
		}
	}
	_, err := f.read(1, bad.Start, 1000)
	check("WAL", err, bad.Start)
	frames, err := f.OpenFrames(1, bad.Start+10) // from inside of the frame: it has to be decoded
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	if err := frames.Begin(link.ClientHello{}); err != nil {
		t.Fatal(err)
	}
	_, err = frames.Next(context.Background())
	check("frames", err, bad.Start)
	_, err = f.decodeUpTo(1, bad.End())
	var damage *spool.CorruptError
	if !errors.As(err, &damage) {
		t.Errorf("the check of the last stream: %v", err)
	}
	err = f.disordered(1, bad.Start, "x")
	if public := err.(*ReadError).Public(); public.Code != protocol.CodeDataCorrupted {
		t.Errorf("disorder: %v", public)
	}
	if public := (&ReadError{Err: spool.ErrClosed}).Public(); public.Code != protocol.CodeInternalError {
		t.Errorf("no damage: %v", public)
	}
}
