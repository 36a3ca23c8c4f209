package zstd3

// How the description of a field's table is told.
const (
	modePredefined = 0
	modeSingle     = 1
	modeOwn        = 2
)

// field is what differs between the three alphabets.
type field struct {
	top       int // highest symbol
	maxLog    int // of a table of the block's own
	basic     *fseTable
	basicTop  int // highest symbol of the predefined table
	basicLog  uint
	fewSymbol int // below so many sequences a table of one's own is not considered
}

var fields = [3]field{
	fieldLiterals: {top: 35, maxLog: 9, basic: &basicLiterals, basicTop: 35, basicLog: 6, fewSymbol: 64},
	fieldOffset:   {top: 31, maxLog: 8, basic: &basicOffset, basicTop: 28, basicLog: 5, fewSymbol: 32},
	fieldMatch:    {top: 52, maxLog: 9, basic: &basicMatch, basicTop: 52, basicLog: 6, fewSymbol: 64},
}

// The predefined tables (RFC 8878, 3.1.1.3.2.2).
var (
	basicLiterals = predefined(6, 4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1)
	basicOffset   = predefined(5, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1)
	basicMatch    = predefined(6, 1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
		1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1)
)

func predefined(log uint, norm ...int16) (t fseTable) {
	t.build(norm, log)
	return t
}

// writeSequences writes the sequences section to e.body[at:] and returns where it ends. ok is false when the library gives up: its
// oldest readers could not read so short a section.
func (e *Encoder) writeSequences(at int) (end int, ok bool) {
	n := len(e.seqs)
	if n < 128 {
		e.body[at] = byte(n)
		at++
	} else {
		e.body[at], e.body[at+1] = byte(n>>8|0x80), byte(n)
		at += 2
	}
	if n == 0 {
		return at, true
	}
	for i, s := range e.seqs {
		e.codes[fieldLiterals][i] = literalCode(s.literals)
		e.codes[fieldOffset][i] = offsetCode(s.offset)
		e.codes[fieldMatch][i] = matchCode(s.match)
	}
	modes := at
	at++
	e.body[modes] = 0
	var tables [3]*fseTable
	lastOwn := 0
	for f := range fields {
		var mode, size int
		tables[f], mode, size = e.chooseTable(f, e.body[at:])
		e.body[modes] |= byte(mode << (6 - 2*f))
		at += size
		if mode == modeOwn {
			lastOwn = size
		}
	}
	end = e.writeCommands(at, tables[fieldLiterals], tables[fieldOffset], tables[fieldMatch])
	if lastOwn > 0 && lastOwn+end-at < 4 {
		return end, false
	}
	return end, true
}

// chooseTable decides how a field's codes are coded, writes the description to buf and returns the table, the mode and the description's length.
func (e *Encoder) chooseTable(which int, buf []byte) (t *fseTable, mode, size int) {
	f := &fields[which]
	codes := e.codes[which][:len(e.seqs)]
	var counts [maxSymbols]uint32
	for _, c := range codes {
		counts[c]++
	}
	top, most := 0, 0
	for s, n := range counts[:f.top+1] {
		if n > 0 {
			top = s
			most = max(most, int(n))
		}
	}
	n := len(codes)
	allowed := top <= f.basicTop
	switch {
	case most == n && allowed && n <= 2:
		return f.basic, modePredefined, 0
	case most == n:
		t = &e.tables[which]
		t.buildSingle(codes[0])
		buf[0] = codes[0]
		return t, modeSingle, 1
	case allowed && (n < f.fewSymbol || most < n>>(f.basicLog-1)):
		return f.basic, modePredefined, 0
	}
	log := tableLogFor(f.maxLog, n, top, 2)
	// The last sequence's codes are told by the first states, not by a transition: one occurrence less to reckon with.
	if last := codes[n-1]; counts[last] > 1 {
		counts[last]--
		n--
	}
	norm := e.norm[:top+1]
	normalize(norm, counts[:top+1], n, log, e.profile.rareCount(n))
	t = &e.tables[which]
	t.build(norm, uint(log))
	return t, modeOwn, writeNorm(buf, norm, log)
}

// writeCommands writes the bit stream of all sequences, last to first, to e.body[at:] and returns where it ends.
func (e *Encoder) writeCommands(at int, literals, offset, match *fseTable) int {
	w := bitWriter{buf: e.body[:], at: at}
	last := len(e.seqs) - 1
	literalCodes, offsetCodes, matchCodes := e.codes[fieldLiterals][:last+1], e.codes[fieldOffset][:last+1], e.codes[fieldMatch][:last+1]
	stateM := match.start(matchCodes[last])
	stateO := offset.start(offsetCodes[last])
	stateL := literals.start(literalCodes[last])
	for i := last; ; i-- {
		s := e.seqs[i]
		l, o, m := literalCodes[i], offsetCodes[i], matchCodes[i]
		w.add(extra(s.literals, literalBits[l]))
		w.flush()
		w.add(extra(s.match, matchBits[m]))
		w.add(extra(s.offset, o))
		w.flush()
		if i == 0 {
			break
		}
		stateO = offset.next(&w, stateO, offsetCodes[i-1])
		stateM = match.next(&w, stateM, matchCodes[i-1])
		stateL = literals.next(&w, stateL, literalCodes[i-1])
	}
	match.finish(&w, stateM)
	offset.finish(&w, stateO)
	literals.finish(&w, stateL)
	w.flush()
	return w.close()
}

// extra returns the low n bits of v, which follow its code.
func extra(v uint16, n uint8) (uint64, uint) { return uint64(v) & (1<<n - 1), uint(n) }
