package model

import "math/bits"

const (
	hexCost   = 4 * 8 // bits, in 1/8, of a random hexadecimal digit
	hexMinRun = 2     // words of digits in a row before the next is expected to be one
	hexPlain  = 3     // words without a letter that mean decimal digits
)

// digitRun is what is known of text that is random hexadecimal digits: keys, digests, UUIDs in text form. A model cannot save
// anything on them but takes its time, so they are coded at even odds.
type digitRun struct {
	run     int    // words of nothing else, up to now
	places  uint8  // bytes of a word that are digits; the others are as in before
	before  uint32 // the word in the row before
	decimal int    // of the run's words, the last ones without a letter
	cost    int    // bits, in 1/8, that the model takes per digit, smoothed
}

func (d *digitRun) expected() bool {
	return d.run >= hexMinRun && d.decimal < hexPlain && d.cost >= hexCost-3 && d.places != 0
}

// begin makes the places fit a word of n bytes of which nothing is known.
func (d *digitRun) begin(n int) { d.places, d.before = 1<<n-1, 0 }

// resume goes on with what a slot knows; before is its word in the row before.
func (d *digitRun) resume(s *slot, before uint32) {
	d.run, d.places, d.decimal, d.before = int(s.digits), s.places, int(s.plain), before
}

// keep has the slot remember.
func (d *digitRun) keep(s *slot) {
	s.digits, s.places, s.plain = uint8(min(d.run, 255)), d.places, uint8(min(d.decimal, 255))
}

// fits reports whether b has digits at the places, and is as before elsewhere.
func (d *digitRun) fits(b []byte) bool {
	for k, c := range b {
		if d.places>>k&1 != 0 && hexValue[c] < 0 || d.places>>k&1 == 0 && c != byte(d.before>>(8*k)) {
			return false
		}
	}
	return true
}

// note learns from the word b. It returns how many digits there are if it is digits where they were, else 0.
func (d *digitRun) note(b []byte) int {
	letters, grown := false, false
	for k, c := range b {
		hex := hexValue[c] >= 0
		if d.places>>k&1 == 0 {
			if c == byte(d.before>>(8*k)) {
				continue
			}
			d.places |= 1 << k
			grown = true
		}
		if !hex {
			d.run, d.decimal, d.places = 0, 0, 0
			return 0
		}
		letters = letters || c >= 'a'
	}
	if grown {
		d.run = 0
	}
	d.run++
	if d.decimal++; letters {
		d.decimal = 0
	}
	return bits.OnesCount8(d.places)
}

// digits codes n bytes at b[i:] as random digits, if they go on as such, or one by one. It reports whether they were digits.
func (m *model) digits(context uint32, b []byte, i, n int, guess uint32, matched bool) bool {
	d := &m.text.digits
	word := b[i : i+n]
	if !matched && d.expected() {
		if m.Flag(ctxTextDigits, n, !m.decoding && d.fits(word)) {
			m.directDigits(word)
			d.note(word)
			return true
		}
	}
	before := m.Spent()
	m.literals(context, b, i, n, guess, matched)
	if digits := d.note(word); digits > 0 && !matched {
		d.cost = (d.cost*15 + (m.Spent()-before)*8/digits + 8) / 16
	}
	return false
}

// digitWords codes the words from i on that have lately been digits at even odds, all in one go, and returns how many. It is 0 if
// they may be something else. What is in front of them was coded as text, and matched nothing earlier.
func (m *model) digitWords(p *rowPart, b []byte, i int, misses uint64) int {
	t, d := &m.rows, &m.text.digits
	if t.textAt != i || 4*i < p.start || t.text.from > 0 || d.cost < hexCost-3 {
		return 0
	}
	n := min(bits.TrailingZeros64(^(misses >> i)), p.end/4-i)
	fit := !m.decoding
	for k := range n {
		if d.resume(&p.set.slots[i+k], le.Uint32(p.class.row[4*(i+k):])); !d.expected() {
			n = k
			break
		}
		fit = fit && d.fits(b[4*(i+k)-p.start:][:4])
	}
	if n < 2 || !m.Flag(ctxTextDigits, 8+min(n, 7), fit) {
		return 0
	}
	at := 4*i - p.start
	for k := range n {
		s := &p.set.slots[i+k]
		d.resume(s, le.Uint32(p.class.row[4*(i+k):]))
		word := b[at+4*k:][:4]
		m.directDigits(word)
		s.text = uint16((int(s.text)*7 + 8*d.note(word)) / 8) // four bits a digit, of four bytes
		d.keep(s)
	}
	m.text.addNoise(b[at:at+4*n], &t.text)
	t.textAt = i + n
	return n
}

// directDigits codes a word's digits at even odds; what is no digit is as before.
func (m *model) directDigits(word []byte) {
	d := &m.text.digits
	var v uint64
	n := 0
	for k := range word {
		if d.places>>k&1 != 0 {
			if n += 4; !m.decoding {
				v = v<<4 | uint64(hexValue[word[k]])
			}
		}
	}
	v = m.Direct(n, v)
	if !m.decoding {
		return
	}
	for k := len(word) - 1; k >= 0; k-- {
		if d.places>>k&1 == 0 {
			word[k] = byte(d.before >> (8 * k))
			continue
		}
		word[k] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

// hexValue is the value of a hexadecimal digit, -1 of other bytes.
var hexValue = func() (values [256]int8) {
	for c := range values {
		switch {
		case c >= '0' && c <= '9':
			values[c] = int8(c - '0')
		case c >= 'a' && c <= 'f':
			values[c] = int8(c - 'a' + 10)
		default:
			values[c] = -1
		}
	}
	return values
}()
