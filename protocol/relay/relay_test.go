package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"walproxy/protocol/datapage"
	"walproxy/protocol/link"
)

func message(kind byte, body []byte) []byte {
	m := append([]byte{kind, 0, 0, 0, 0}, body...)
	be.PutUint32(m[1:], uint32(4+len(body)))
	return m
}

// answer returns the messages of a BASE_BACKUP with random contents, and the kinds in order.
func answer(rnd *rand.Rand, count int) (all []byte, kinds []byte) {
	for range count {
		kind := "dddddTDCHcEN"[rnd.IntN(12)]
		body := make([]byte, rnd.IntN(1<<rnd.IntN(17)))
		for i := range body {
			body[i] = byte(rnd.IntN(1 + rnd.IntN(256)))
		}
		for at := rnd.IntN(100); at+datapage.PageBytes <= len(body); at += datapage.PageBytes + rnd.IntN(2)*rnd.IntN(3000) {
			fillPage(rnd, body[at:])
		}
		all, kinds = append(all, message(kind, body)...), append(kinds, kind)
	}
	return append(all, message('Z', []byte{'I'})...), append(kinds, 'Z')
}

// fillPage makes the start of b a data page: a header, line pointers that show rows of one length, and random bytes.
func fillPage(rnd *rand.Rand, b []byte) {
	rows, length := rnd.IntN(50), 1+rnd.IntN(100)
	upper := datapage.PageBytes - rows*((length+7)&^7)
	copy(b[12:], binary.LittleEndian.AppendUint64(nil, uint64(24+4*rows)|uint64(upper)<<16|datapage.PageBytes<<32|(datapage.PageBytes+4)<<48))
	for i := range rows {
		binary.LittleEndian.PutUint32(b[24+4*i:], uint32(datapage.PageBytes-(i+1)*((length+7)&^7))|1<<15|uint32(length)<<17)
	}
}

// collect reads all pieces and returns their bytes and the kinds of those that came alone.
func collect(t *testing.T, s *Scanner) (all, alone []byte, err error) {
	t.Helper()
	for {
		piece, err := s.Next()
		if err != nil {
			if errors.Is(err, io.EOF) && !s.Between() {
				t.Error("the end lies within a message")
			}
			return all, alone, err
		}
		if piece.Kind != 0 {
			alone = append(alone, piece.Kind)
			if want := message(piece.Kind, piece.Body()); !bytes.Equal(piece.Bytes, want) || !s.Between() {
				t.Fatalf("message %q is not whole", piece.Kind)
			}
		}
		all = append(all, piece.Bytes...)
	}
}

func isAlone(kind byte) bool { return kind == 'E' || kind == 'Z' || kind == 'T' }

// TestScanner: however the stream arrives, all of it is delivered in order, and what matters comes alone.
func TestScanner(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		want, kinds := answer(rnd, rnd.IntN(60))
		var wantAlone []byte
		for _, kind := range kinds {
			if isAlone(kind) {
				wantAlone = append(wantAlone, kind)
			}
		}
		for name, src := range map[string]io.Reader{
			"whole": bytes.NewReader(want), "half": iotest.HalfReader(bytes.NewReader(want)), "with EOF": iotest.DataErrReader(bytes.NewReader(want)),
			"random": &randomReader{bytes.NewReader(want), rnd},
		} {
			all, alone, err := collect(t, NewScanner(src, isAlone))
			if !errors.Is(err, io.EOF) || !bytes.Equal(all, want) || !bytes.Equal(alone, wantAlone) {
				t.Fatalf("%s: %d bytes, alone %q, %v; want %d bytes, alone %q", name, len(all), alone, err, len(want), wantAlone)
			}
		}
	}
}

type randomReader struct {
	src io.Reader
	rnd *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	return r.src.Read(p[:min(len(p), 1+r.rnd.IntN(2000))])
}

func TestScannerErrors(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"nothing":          {"", io.EOF},
		"half a header":    {"d\x00\x00", io.ErrUnexpectedEOF},
		"half a run":       {"d\x00\x00\x00\x08ab", io.ErrUnexpectedEOF},
		"half a message":   {"E\x00\x00\x00\x08ab", io.ErrUnexpectedEOF},
		"length 3":         {"d\x00\x00\x00\x03", ErrMessage},
		"negative length":  {"d\xff\xff\xff\xff", ErrMessage},
		"huge alone":       {"E\x7f\xff\xff\xff", ErrMessage},
		"huge in a run":    {"d\x7f\xff\xff\xffabc", io.ErrUnexpectedEOF},
		"error after some": {"Z\x00\x00\x00\x05Id\x00\x00\x00\x00", ErrMessage},
	} {
		if _, _, err := collect(t, NewScanner(bytes.NewReader([]byte(c.stream)), isAlone)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestScannerAllocates: passing data on costs no memory.
func TestScannerAllocates(t *testing.T) {
	stream := bytes.Repeat(message('d', make([]byte, 32<<10)), 1000)
	src := bytes.NewReader(stream)
	s := NewScanner(src, isAlone)
	allocs := testing.AllocsPerRun(100, func() {
		if src.Len() == 0 {
			src.Reset(stream)
		}
		if _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for each piece", allocs)
	}
}

// wrapped returns a node's whole answer that carries content, flushed at random.
func wrapped(t *testing.T, rnd *rand.Rand, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	out.Write(message('H', []byte{0, 0, 0}))
	w, err := NewWrapper(&out)
	must(t, err)
	for len(content) > 0 {
		n := min(len(content), 1+rnd.IntN(100<<10))
		_, err := w.Write(content[:n])
		must(t, err)
		if rnd.IntN(4) == 0 {
			must(t, w.Flush())
			if w.Dirty() {
				t.Fatal("there is something left to flush")
			}
		}
		content = content[n:]
	}
	must(t, w.Close())
	out.Write(message('c', nil))
	out.Write(message('C', []byte("BASE_BACKUP\x00")))
	out.Write(message('Z', []byte{'I'}))
	return out.Bytes()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWrap: what is unwrapped is what was wrapped, the connection is left behind ReadyForQuery, and messages are short.
func TestWrap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		want, _ := answer(rnd, rnd.IntN(100))
		stream := wrapped(t, rnd, want)
		messages := NewScanner(bytes.NewReader(stream), func(byte) bool { return true })
		for {
			m, err := messages.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if len(m.Body()) > 1+payloadBytes {
				t.Fatalf("a message of %d bytes", len(m.Body()))
			}
		}
		src := bytes.NewReader(append(stream, "next"...))
		u, err := NewUnwrapper(iotest.OneByteReader(src))
		must(t, err)
		got, err := io.ReadAll(u)
		must(t, err)
		must(t, u.Drain())
		u.Close()
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d", len(got), len(want))
		}
	}
}

// TestUnwrapArrivesAtOnce: what was flushed can be read before more arrives.
func TestUnwrapArrivesAtOnce(t *testing.T) {
	src, dst := io.Pipe()
	defer src.Close()
	want := message('T', []byte("first"))
	go func() {
		w, err := NewWrapper(dst)
		if err == nil {
			_, err = w.Write(want)
		}
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			_ = dst.CloseWithError(err)
		}
	}()
	u, err := NewUnwrapper(src)
	must(t, err)
	defer u.Close()
	piece, err := NewScanner(u, isAlone).Next()
	must(t, err)
	if !bytes.Equal(piece.Bytes, want) {
		t.Fatalf("got %q", piece.Bytes)
	}
}

// TestUnwrapBroken: an answer that is broken off is an error, and a node's own error comes through.
func TestUnwrapBroken(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	content, _ := answer(rnd, 30)
	stream := wrapped(t, rnd, content)
	for n := 0; n < len(stream)-20; n += 1 + n/10 {
		u, err := NewUnwrapper(bytes.NewReader(stream[:n]))
		must(t, err)
		if got, err := io.ReadAll(u); err == nil && len(got) == len(content) && u.Drain() == nil {
			t.Fatalf("%d of %d bytes: no error", n, len(stream))
		}
		u.Close()
	}
	refusal := message('E', []byte("SERROR\x00\x00"))
	for _, head := range [][]byte{nil, stream[:8], stream[:8+5+1+4]} {
		broken := append(append(bytes.Clone(head), refusal...), message('Z', []byte{'I'})...)
		if len(head) > 8 { // a message that is whole, of a zstd stream that is not
			broken = append(append(bytes.Clone(stream[:8]), message('d', append([]byte{link.MessageBackup}, stream[14:40]...))...), append(refusal, message('Z', []byte{'I'})...)...)
		}
		u, err := NewUnwrapper(bytes.NewReader(broken))
		must(t, err)
		_, err = io.ReadAll(u)
		var refused *RefusedError
		if !errors.As(err, &refused) || !bytes.Equal(refused.Message, refusal) {
			t.Fatalf("behind %d bytes: %v", len(head), err)
		}
		must(t, u.Drain())
		u.Close()
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("d\x00\x00\x00\x08abcdE\x00\x00\x00\x04Z\x00\x00\x00\x05I"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		all, _, err := collect(t, NewScanner(bytes.NewReader(stream), isAlone))
		if err == nil || !bytes.HasPrefix(stream, all) {
			t.Fatalf("%d of %d bytes, %v", len(all), len(stream), err)
		}
	})
}

func FuzzUnwrapper(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	content, _ := answer(rnd, 5)
	var out bytes.Buffer
	w, err := NewWrapper(&out)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte("H\x00\x00\x00\x07\x00\x00\x00E\x00\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		u, err := NewUnwrapper(bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(u, 64<<20))
	})
}

func FuzzBackupStart(f *testing.F) {
	f.Add([]byte("\x00\x02\x00\x00\x00\x090/2000028\x00\x00\x00\x011"))
	f.Fuzz(func(t *testing.T, body []byte) {
		start, err := ParseBackupStart(body)
		if err == nil && start.Timeline == 0 {
			t.Fatal("timeline 0")
		}
		if err != nil && !errors.Is(err, ErrMessage) {
			t.Fatal(err)
		}
	})
}

// TestBlocks: every byte of an answer is in one block, pages in columns, and no flipped bit goes unnoticed.
func TestBlocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		want, _ := answer(rnd, 1+rnd.IntN(40))
		want = want[:min(len(want), blockBytes)]
		for _, all := range []bool{true, false} {
			var got, block []byte
			var pages datapage.Pages
			for rest := want; len(rest) > 0; {
				var n int
				block, n = appendBlock(block[:0], rest, &pages, all)
				rest = rest[n:]
				h, err := parseBlockHeader(block)
				must(t, err)
				if n == 0 || h.raw != n || h.form != len(block)-blockHeaderBytes || all && n != len(want) || len(rest) >= datapage.PageBytes {
					t.Fatalf("a block of %d bytes with %d bytes of %d says %+v", len(block), n, len(want), h)
				}
				got, err = h.appendContent(got, block[blockHeaderBytes:], &pages)
				must(t, err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes do not come back", len(want))
			}
			for range 20 {
				at, bit := rnd.IntN(len(block)), byte(1)<<rnd.IntN(8)
				block[at] ^= bit
				h, err := parseBlockHeader(block)
				if err == nil && h.form == len(block)-blockHeaderBytes {
					_, err = h.appendContent(nil, block[blockHeaderBytes:], &pages)
				} else if err == nil {
					err = ErrMessage // the stream goes on elsewhere
				}
				if !errors.Is(err, ErrMessage) {
					t.Fatalf("bit %x of byte %d of %d is flipped: %v", bit, at, len(block), err)
				}
				block[at] ^= bit
			}
		}
	}
}

// TestWrapAllocates: a backup under way costs no memory, on either side.
func TestWrapAllocates(t *testing.T) {
	content, _ := answer(rand.New(rand.NewPCG(1, 2)), 200)
	var out bytes.Buffer
	w, err := NewWrapper(&out)
	must(t, err)
	for range 4 {
		_, err := w.Write(content)
		must(t, err)
	}
	must(t, w.Flush())
	if allocs := testing.AllocsPerRun(5, func() {
		out.Reset()
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}); allocs > 2 { // of what is not ours
		t.Errorf("%v allocations for %d bytes wrapped", allocs, len(content))
	}
}

func FuzzBlock(f *testing.F) {
	var pages datapage.Pages
	content, _ := answer(rand.New(rand.NewPCG(1, 2)), 20)
	block, _ := appendBlock(nil, content[:min(len(content), blockBytes)], &pages, true)
	f.Add(block)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < blockHeaderBytes {
			return
		}
		h, err := parseBlockHeader(b)
		if err != nil {
			return
		}
		form := b[blockHeaderBytes:]
		got, err := h.appendContent(nil, form[:min(len(form), h.form)], &pages)
		if err != nil && !errors.Is(err, ErrMessage) || len(got) > h.raw {
			t.Fatalf("%d bytes of %d: %v", len(got), h.raw, err)
		}
	})
}
