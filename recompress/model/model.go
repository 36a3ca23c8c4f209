// Package model codes WAL with an adaptive range coder driven by knowledge of the records: what can be computed is not coded
// (page headers, lengths, xl_prev, xl_crc, padding), and every other field is predicted from the record's kind, its relation,
// its transaction and the page state seen so far in the stream, and coded as "as predicted" or as a residual. Whatever is not
// WAL is coded byte by byte. It is pure, and its decoder never panics and never works without bound on any input.
//
// A stream begins with two bits, the number of predictions that are combined for each decision, less one.
//
// Encoder and Decoder run the same code: a coding function gets the value and codes it, or gets anything and returns the value.
// Everything that steers a prediction is computed from values that both sides have.
package model

import (
	"walproxy/protocol"
	"walproxy/recompress/rangecoder"
)

const (
	blockBytes    = 8192
	walPageBytes  = 8192
	maxRecordSize = 64 << 20 // larger records are carried as bytes; a stream's window is never larger
)

// model is the state of one stream in one direction.
type model struct {
	rangecoder.Coder
	decoding    bool
	begun       bool  // a piece of the stream was coded
	predictions int   // encoder: for each decision
	err         error // decoder: the first thing found wrong; nothing is coded after it

	wal  []byte // encoder: the piece; decoder: the caller's buffer with what is decoded so far
	at   int    // next byte of wal to code
	end  int    // length of wal when the piece is complete
	page pageState

	rec       record
	scratch   []byte // a record that page headers interrupt (encoder), the record being decoded (decoder)
	headCheck []byte

	dict       dictionary
	xacts      transactions
	field      fields
	rows       rows
	text       text
	store      store
	image      imageState
	more       morePages
	postings   postings
	pruned     pruned
	compressed compressed
	near       neighbourMaps
	used       bool // since it was made
	cost       *Costs
	observe    observation // encoder
}

func newModel() *model {
	m := &model{Coder: rangecoder.New()}
	m.dict.init()
	m.rows.init()
	m.text.init()
	m.store.init()
	return m
}

// reset begins a stream whose first byte is at start on tli.
func (m *model) reset(tli protocol.Timeline, start protocol.LSN) {
	if m.used {
		m.forget()
	}
	m.used, m.begun = true, false
	m.page = pageState{pos: start, tli: uint32(tli), segment: 16 << 20}
}

// forget makes the model as it was made, but keeps its memory. One that was never used is that already: clearing it would make the
// system find pages for all of its tables, most of which a small stream never touches.
func (m *model) forget() {
	m.Forget()
	m.err = nil
	m.dict.reset()
	m.xacts = transactions{}
	m.field.reset()
	m.rows.reset()
	m.text.reset()
	m.store.reset()
	m.image.reset()
	m.more.reset()
	m.postings.reset()
	m.pruned = pruned{}
	m.near.reset()
	m.compressed.reset()
}

// begin codes, in front of a stream's first piece, how many predictions are combined for each decision.
func (m *model) begin() {
	if m.begun {
		return
	}
	m.begun = true
	m.Predict(1 + int(m.Direct(2, uint64(m.predictions-1))))
}

// corrupt notes that a decoder met what no encoder writes.
func (m *model) corrupt(what string) {
	if m.err == nil {
		m.err = &CorruptError{LSN: m.page.pos, What: what}
	}
}
