package model

// Observer is told of each record that an Encoder codes: the record, the magic of its page, and what it took in 1/256 bit, page
// images apart; images holds what each of these took. All slices are valid during the call only.
type Observer func(record []byte, magic uint16, spent int64, images []int64)

// Observe makes the Encoder tell o; nil: nobody.
func (e *Encoder) Observe(o Observer) { e.m.observe.to = o }

// observation adds up the record in progress.
type observation struct {
	to     Observer
	begun  int64
	images []int64
}

func (m *model) observeBegin() {
	if o := &m.observe; o.to != nil {
		o.begun, o.images = m.Bits(), o.images[:0]
	}
}

func (m *model) observedImage(k *block) {
	if m.observe.to == nil {
		m.pageImage(k)
		return
	}
	before := m.Bits()
	m.pageImage(k)
	spent := m.Bits() - before
	m.observe.images = append(m.observe.images, spent)
	m.observe.begun += spent
}

func (m *model) observeEnd(r *record) {
	if o := &m.observe; o.to != nil {
		o.to(r.raw, m.page.magic, m.Bits()-o.begun, o.images)
	}
}
