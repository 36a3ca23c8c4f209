package model

const (
	hexCost   = 4 * 8 // bits, in 1/8, of a random hexadecimal digit
	hexMinRun = 2     // words of digits in a row before the next is expected to be one
)

// digitRun is what is known of text that is random hexadecimal digits: keys, digests, UUIDs in text form. A model cannot save
// anything on them but takes its time, so they are coded at even odds.
type digitRun struct {
	run     int // words of nothing else, up to now
	decimal int // of these, the last ones without a letter
	cost    int // bits, in 1/8, that the model takes per digit, smoothed
}

func (d *digitRun) expected() bool { return d.run >= hexMinRun && d.decimal < 3 && d.cost >= hexCost-3 }

func (d *digitRun) note(b []byte) bool {
	hex, letters := true, false
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
		case c >= 'a' && c <= 'f':
			letters = true
		default:
			hex = false
		}
	}
	switch {
	case !hex:
		d.run, d.decimal = 0, 0
	case letters:
		d.run, d.decimal = d.run+1, 0
	default:
		d.run, d.decimal = d.run+1, d.decimal+1
	}
	return hex
}

// digits codes n bytes at b[i:] as random digits, if they go on as such, or one by one.
func (m *model) digits(context uint32, b []byte, i, n int, guess uint32, matched bool) {
	d := &m.text.digits
	word := b[i : i+n]
	if !matched && d.expected() {
		isHex := !m.decoding && allHex(word)
		if m.flag(ctxTextDigits, n, isHex) {
			var v uint64
			if !m.decoding {
				for _, c := range word {
					v = v<<4 | uint64(hexValue(c))
				}
			}
			v = m.Direct(4*n, v)
			if m.decoding {
				for k := range word {
					word[k] = "0123456789abcdef"[v>>(4*(n-1-k))&15]
				}
			}
			d.note(word)
			return
		}
	}
	before := m.Spent()
	m.literals(context, b, i, n, guess, matched)
	if d.note(word) && !matched {
		d.cost = (d.cost*15 + (m.Spent()-before)*8/n + 8) / 16
	}
}

func allHex(b []byte) bool {
	for _, c := range b {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'a' + 10
}
