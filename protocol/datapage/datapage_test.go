package datapage

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// turn puts every byte of matrices of all shapes where it belongs, and touches nothing else.
func TestTurn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for rows := 1; rows < 40; rows++ {
		for columns := 1; columns < 40; columns++ {
			n := rows * columns
			src, got, want := make([]byte, n), make([]byte, n+1), make([]byte, n+1)
			for i := range src {
				src[i] = byte(rnd.IntN(256))
			}
			got[n], want[n] = 7, 7
			for r := range rows {
				for c := range columns {
					want[c*rows+r] = src[r*columns+c]
				}
			}
			if turn(got, src, rows, columns); !bytes.Equal(got, want) {
				t.Fatalf("%d rows, %d columns: got %x, want %x", rows, columns, got, want)
			}
		}
	}
}

// AppendRows undoes AppendColumns, whatever is left behind the last row and in front of both.
func TestRowsUndoColumns(t *testing.T) {
	for width := 0; width < 300; width += 8 {
		for n := 0; n < 700; n += 37 {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(i * 7 >> 2)
			}
			columns := AppendColumns([]byte("head"), b, width)
			if back := AppendRows([]byte("wal"), columns[4:], width); string(back[:3]) != "wal" || !bytes.Equal(back[3:], b) {
				t.Fatalf("width %d: %d bytes do not come back", width, n)
			}
		}
	}
}

// example returns a page with rows of mostly one length.
func example(rnd *rand.Rand, length int) []byte {
	b := make([]byte, PageBytes)
	le.PutUint16(b[versionOffset:], PageBytes|4)
	lower, upper, special := HeaderBytes, PageBytes-rnd.IntN(3)*8, 0
	special = upper
	for rnd.IntN(200) > 0 && lower+length+16 < upper-8 {
		n := length
		if rnd.IntN(30) == 0 {
			n += rnd.IntN(9)
		}
		upper -= (n + 7) &^ 7
		if rnd.IntN(50) > 0 {
			le.PutUint32(b[lower:], uint32(upper)|1<<15|uint32(n)<<lengthShift)
		}
		for i := range n {
			b[upper+i] = byte(rnd.IntN(1 + i))
		}
		lower += pointerBytes
	}
	le.PutUint16(b[LowerOffset:], uint16(lower))
	le.PutUint16(b[LowerOffset+2:], uint16(upper))
	le.PutUint16(b[SpecialOffset:], uint16(special))
	return b
}

// Pages are found wherever they lie and come back, rows in columns.
func TestPages(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var pages Pages
	for range 200 {
		before, length := rnd.IntN(3000), 20+rnd.IntN(300)
		page := example(rnd, length)
		b := append(append(bytes.Repeat([]byte{4}, before), page...), "behind"...)
		if at := Find(b); at != before || !Is(b[at:]) {
			t.Fatalf("a page at %d was found at %d", before, at)
		}
		laid, width := pages.Append([]byte("x"), b[before:])
		back, n := pages.Restore([]byte("y"), append(laid[1:len(laid):len(laid)], "next"...), width)
		if len(laid)-1 > PageBytes+MaxOverhead {
			t.Fatalf("a page of %d bytes", len(laid)-1)
		}
		if n != len(laid)-1 || string(back[:1]) != "y" || !bytes.Equal(back[1:], page) {
			t.Fatalf("rows of %d bytes: the page does not come back", length)
		}
		for short := range 40 {
			if _, n := pages.Restore(nil, laid[1:len(laid)-1-short*len(laid)/41], width); n != 0 {
				t.Fatalf("rows of %d bytes: %d of %d bytes make a page", length, n, len(laid))
			}
		}
		if width != 0 && width != (length+7)&^7 && width != (length+15)&^7 {
			t.Errorf("rows of %d bytes: width %d", length, width)
		}
	}
	if at := Find(make([]byte, 3*PageBytes)); at != 3*PageBytes {
		t.Errorf("a page of zeros was found at %d", at)
	}
}

// Seven of eight line pointers that agree say how wide the columns are.
func TestWidth(t *testing.T) {
	pointers := func(lengths ...uint32) (b []byte) {
		for _, n := range lengths {
			b = le.AppendUint32(b, n<<lengthShift|1<<15|100)
		}
		return b
	}
	for _, c := range []struct {
		pointers []byte
		width    int
	}{
		{nil, 0},
		{pointers(97, 97, 97), 0},
		{pointers(97, 100, 104, 98), 104},
		{pointers(8, 97, 97, 97, 97, 97, 97, 97), 104},
		{pointers(8, 8, 97, 97, 97, 97, 97, 97), 0},
		{pointers(0, 0, 0, 0), 0},
		{pointers(MaxWidth, MaxWidth, MaxWidth, MaxWidth), MaxWidth},
		{pointers(MaxWidth+1, MaxWidth+1, MaxWidth+1, MaxWidth+1), 0},
	} {
		if got := Width(c.pointers); got != c.width {
			t.Errorf("%x: width %d, want %d", c.pointers, got, c.width)
		}
	}
}

// Whatever looks like a page comes back, and whatever else is restored is a page.
func FuzzPage(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var pages Pages
	for _, length := range []int{9, 61, 97, 500} {
		page := example(rnd, length)
		laid, width := pages.Append(nil, page)
		f.Add(page, uint16(width))
		f.Add(laid, uint16(width))
		f.Add(laid[:len(laid)-1], uint16(width))
	}
	f.Fuzz(func(t *testing.T, b []byte, width uint16) {
		if page, n := pages.Restore(nil, b, int(width)%(MaxWidth+1)&^7); n > len(b) || n > 0 && !Is(page) {
			t.Fatalf("%d bytes restored of %d", n, len(b))
		}
		b = append(b, make([]byte, PageBytes)...)[:PageBytes]
		if !Is(b) {
			return
		}
		laid, w := pages.Append(nil, b)
		if back, n := pages.Restore(nil, laid, w); n != len(laid) || !bytes.Equal(back, b) {
			t.Fatal("the page does not come back")
		}
	})
}
