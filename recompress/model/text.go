package model

import "walproxy/recompress/rangecoder"

const (
	historyBytes = 1 << placeBits // of text that later text is matched against
	matchLog     = 16
	matchBytes   = 5  // hashed to find a match
	placeBits    = 22 // of an entry of the table of matches: the position; the others check the hash
	settledRun   = 8  // steps that a match has held
	storedBytes  = 32 // shorter areas are never stored without a model
	sampleBytes  = 4096
)

// text is the memory of bytes without a structure: what was coded, and where to find it again.
type text struct {
	history []byte
	heads   []uint32 // position behind the bytes that hash there, and a check in the upper bits
	digits  digitRun
}

func (t *text) init() {
	t.history = make([]byte, 0, 1<<18)
	t.heads = make([]uint32, 1<<matchLog)
	t.digits = digitRun{cost: hexCost}
}

func (t *text) reset() {
	t.history = t.history[:0]
	clear(t.heads)
	t.digits = digitRun{cost: hexCost}
}

const (
	ctxTextSame = 0x0401_0000 + iota
	ctxTextStored
	ctxTextMatch
	ctxTextPrevious
	ctxTextByte
	ctxTextMatched
	ctxTextDigits
)

// bytes codes b, of which nothing is known but bytes of the same kind that came before: previous, which may be nil.
func (m *model) bytes(context uint32, b, previous []byte) {
	if len(b) == 0 {
		return
	}
	if len(b) == len(previous) {
		same := !m.decoding && string(b) == string(previous)
		if m.Flag(context+ctxTextSame, 0, same) {
			if m.decoding {
				copy(b, previous)
			}
			return
		}
	}
	var at cursor
	for len(b) > 0 {
		n := min(len(b), sampleBytes)
		m.area(context, &at, b[:n], previous)
		b, previous = b[n:], previous[min(n, len(previous)):]
	}
}

// area codes up to sampleBytes bytes: stored at even odds if they look like noise, else with the model.
func (m *model) area(context uint32, at *cursor, b, previous []byte) {
	if len(b) >= storedBytes {
		noise := !m.decoding && isNoise(b)
		if m.Flag(ctxTextStored, 0, noise) {
			m.Bytes(b)
			*at = cursor{}
			return
		}
	}
	m.match(context, at, b, previous)
}

// isNoise reports whether no order-0 model would save anything worth having. Few bytes never look like noise.
func isNoise(b []byte) bool {
	if len(b) < 512 {
		return false
	}
	var count [256]uint16
	for _, c := range b {
		count[c]++
	}
	// The sum of squares is n*n/256+n on average for noise; text and numbers are far above.
	sum := uint64(0)
	for _, c := range count {
		sum += uint64(c) * uint64(c)
	}
	n := uint64(len(b))
	return sum*256 < n*n+n*256+n*n/16
}

// cursor is where a match in the history goes on, and for how many steps it has held. The zero cursor is no match.
type cursor struct{ from, run int }

// match codes b in steps of up to four bytes: as the match in the history goes on, as the previous area has it, or literally.
func (m *model) match(context uint32, at *cursor, b, previous []byte) {
	remember := len(b) >= 16
	for i := 0; i < len(b); {
		n := min(4, len(b)-i)
		m.text.digits.begin(n)
		m.step(context, at, b, i, n, previous, remember)
		i += n
	}
}

// step codes n bytes at b[i:], at most four, and reports whether a match held.
func (m *model) step(context uint32, at *cursor, b []byte, i, n int, previous []byte, remember bool) bool {
	t := &m.text
	var guess, before uint32
	v := load(b[i:], n)
	if i < len(previous) {
		before = load(previous[i:], min(n, len(previous)-i))
	}
	if at.from > 0 {
		guess = t.ahead(at.from, n)
	}
	hit := false
	if at.from > 0 {
		if hit = m.Flag(ctxTextMatch, min(at.run, 15), v == guess); hit {
			v = guess
		}
	}
	if !hit && i+n <= len(previous) && (at.from == 0 || guess != before) {
		same := i >= 4 && string(b[i-4:i]) == string(previous[i-4:i])
		place := min(i/4, 7)
		if same {
			place += 8
		}
		if hit = m.Flag(context+ctxTextPrevious, place, v == before); hit {
			v = before
		}
	}
	digits := false
	if !hit {
		digits = m.digits(context, b, i, n, guess, at.from > 0)
	} else if m.decoding {
		for k := range n {
			b[i+k] = byte(v >> (8 * k))
		}
	}
	held := at.from > 0 && follows(b[i:i+n], guess)
	if held {
		at.from += n
		at.run++
	} else {
		*at = cursor{}
	}
	if remember {
		t.add(b, i, n, at, digits)
	} else if at.from >= len(t.history) {
		*at = cursor{}
	}
	return held
}

func follows(b []byte, guess uint32) bool {
	for k, c := range b {
		if c != byte(guess>>(8*k)) {
			return false
		}
	}
	return true
}

// literals codes n bytes at b[i:] one by one; guess is what the match expected, if there is one.
func (m *model) literals(context uint32, b []byte, i, n int, guess uint32, matched bool) {
	for k := range n {
		at := i + k
		var ctx uint32
		p1 := uint32(0)
		if at > 0 {
			p1 = uint32(b[at-1])
		}
		if matched {
			expected := guess >> (8 * k) & 255
			ctx = rangecoder.Hash(expected|p1<<8, ctxTextMatched)
		} else {
			p2 := uint32(0)
			if at > 1 {
				p2 = uint32(b[at-2])
			}
			ctx = rangecoder.Hash(p1|p2<<8, ctxTextByte)
		}
		c := m.Byte(ctx, b[at])
		m.put8(b[at:], c)
		if matched && c != byte(guess>>(8*k)) {
			matched = false
		}
	}
}

// add puts b[i:i+n] into the history and looks for a match if there is none. Of noise only the end is entered into the table.
// A history that is full forgets everything.
func (t *text) add(b []byte, i, n int, at *cursor, noise bool) {
	if len(t.history)+8 > historyBytes {
		t.history = t.history[:0]
		clear(t.heads)
		*at = cursor{}
	}
	t.history = append(t.history, b[i:i+n]...)
	if at.run < settledRun { // what repeats for long is in the table already
		first := len(t.history) - n + 1
		if noise || i+1 < matchBytes { // the bytes in front belong to another text
			first = len(t.history)
		}
		t.index(max(first, matchBytes), at)
	}
	if at.from >= len(t.history) {
		*at = cursor{}
	}
}

// addNoise puts b into the history without entering it into the table: it is found by what is in front of it.
func (t *text) addNoise(b []byte, at *cursor) {
	if len(t.history)+len(b)+8 > historyBytes {
		t.history = t.history[:0]
		clear(t.heads)
	}
	t.history = append(t.history, b...)
	*at = cursor{}
}

// index enters the ends from first on into the table, and starts a match at the last of them if there is none.
func (t *text) index(first int, at *cursor) {
	for end := first; end <= len(t.history); end++ {
		tail := t.history[end-matchBytes : end]
		hash := le.Uint32(tail)*0x9E3779B1 ^ uint32(tail[4])*0x85EBCA6B
		head := &t.heads[hash>>(32-matchLog)]
		entry := *head
		*head = uint32(end) | hash<<placeBits
		if end < len(t.history) || at.from > 0 || (entry^hash<<placeBits)>>placeBits != 0 {
			continue
		}
		if from := int(entry & (1<<placeBits - 1)); from >= matchBytes && string(t.history[from-matchBytes:from]) == string(tail) {
			at.from = from
		}
	}
}

// ahead returns the n bytes, at most four, behind from in the history, which goes on in the same rhythm behind its end.
func (t *text) ahead(from, n int) uint32 {
	rest := t.history[from:]
	if len(rest) >= 4 {
		return le.Uint32(rest) & (1<<(8*n) - 1)
	}
	var v uint32
	for k := range n {
		v |= uint32(rest[k%len(rest)]) << (8 * k)
	}
	return v
}

// load returns the first n bytes of b, at most four.
func load(b []byte, n int) uint32 {
	if len(b) >= 4 {
		return le.Uint32(b) & (1<<(8*n) - 1)
	}
	var v uint32
	for k, c := range b[:n] {
		v |= uint32(c) << (8 * k)
	}
	return v
}
