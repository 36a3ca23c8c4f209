package model

import "walproxy/recompress/rangecoder"

// Limits of what a stream remembers. Beyond them records are carried as bytes (kinds) or share a state (relations, plans).
const (
	maxKinds     = 1 << 12
	maxRelations = 1 << 12
	maxPlans     = 1 << 12
	maxKeyBytes  = 8 + 3*(maxBlockID+1)

	planBlocks   = 4   // blocks whose last data a plan keeps
	planBytes    = 512 // of each of them
	predictions  = 1 << 12
	planCacheLog = 8
	targetCount  = 6
)

// kind is what records have in common whose headers differ in numbers only: resource manager, operation, optional parts and
// the flags of every block. key spells it.
type kind struct {
	index int
	key   []byte
	ctx   uint32
}

// plan is what is known of the records of one kind on one relation.
type plan struct {
	index     int // in the dictionary's plans
	kind, rel int
	ctx       uint32
	history   uint32 // of the lengths as last time
	step      uint32 // between the items of the last two records, see stride
	mainBytes int
	main      []byte
	blocks    [planBlocks]planBlock
}

type planBlock struct {
	number     uint32
	dataBytes  int
	imageBytes int
	holeOffset int
	holeBytes  int
	data       []byte
}

// relState is what is known of one relation.
type relState struct {
	index   int
	id      relation
	ctx     uint32
	last    uint32              // block referenced last
	targets [targetCount]uint32 // blocks that took new tuples, latest first
	page    imageRef
}

// stride notes by how much an item lies behind the one before, if it does: at the next page it begins again.
func (p *plan) stride(last, item uint32) {
	if item > last {
		p.step = item - last
	}
}

// dictionary numbers the kinds, relations and plans of a stream.
type dictionary struct {
	kinds     []kind
	kindIndex map[string]int
	rels      []*relState
	relIndex  map[relation]int
	plans     []*plan
	planIndex map[uint32]int
	planCache [1 << planCacheLog]*plan // those looked up last

	key      [maxKeyBytes]byte
	nextKind [predictions][2]uint16
	nextRel  [predictions]uint16
	heads    [predictions]head
	previous uint32 // context of the record before
}

func (d *dictionary) init() {
	d.kindIndex, d.relIndex, d.planIndex = map[string]int{}, map[relation]int{}, map[uint32]int{}
}

func (d *dictionary) reset() {
	d.kinds, d.rels, d.plans = d.kinds[:0], d.rels[:0], d.plans[:0]
	clear(d.kindIndex)
	clear(d.relIndex)
	clear(d.planIndex)
	clear(d.planCache[:])
	clear(d.nextKind[:])
	clear(d.nextRel[:])
	clear(d.heads[:])
	d.previous = 0
}

const (
	ctxKind = 0x0201_0000 + iota
	ctxKindSecond
	ctxKindIndex
	ctxKindKey
	ctxRel
	ctxRelIndex
	ctxRelID
)

// kind codes what kind of record follows, in the context of what its transaction did before.
func (m *model) kind(r *record) {
	d := &m.dict
	x := r.xact
	key := d.key[:0]
	if !m.decoding {
		key = r.appendKey(key)
	}
	one := rangecoder.Hash(x.k1, ctxKind)
	two := x.headContext()
	expected := &d.nextKind[two%predictions]
	index := -1
	for i := range expected {
		guess := int(expected[i])
		hit := guess < len(d.kinds) && !m.decoding && string(d.kinds[guess].key) == string(key)
		place := i
		if i == 1 && expected[0] == expected[1] {
			break
		}
		if m.Flag(two, place, hit) {
			index = guess
			break
		}
	}
	if index < 0 {
		if !m.decoding {
			var known bool
			if index, known = d.kindIndex[string(key)]; !known {
				index = len(d.kinds)
			}
		}
		index = m.index(one+1, index)
	}
	if index == len(d.kinds) && m.err == nil {
		m.newKind(key)
	}
	if index >= len(d.kinds) {
		m.corrupt("unknown kind of record")
		return
	}
	if int(expected[0]) != index {
		expected[1], expected[0] = expected[0], uint16(index)
	}
	r.kind = &d.kinds[index]
	if m.decoding {
		r.fromKey(r.kind.key)
	}
}

// index codes a number below 1<<12.
func (m *model) index(context uint32, v int) int {
	high := m.Nibble(context, v>>8&15)
	middle := m.Nibble(rangecoder.Hash(context, uint32(high)+1), v>>4&15)
	low := m.Nibble(rangecoder.Hash(context, uint32(high<<4+middle)+0x101), v&15)
	return high<<8 | middle<<4 | low
}

// appendKey appends the spelling of r's kind: rmid, info, shape, origin, blocks.
func (r *record) appendKey(key []byte) []byte {
	key = append(key, r.rmid, r.info, r.shape, byte(r.origin), byte(r.origin>>8))
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		key = append(key, k.id, k.fork, k.imageInfo)
	}
	return key
}

func (r *record) fromKey(key []byte) {
	r.rmid, r.info, r.shape, r.origin = key[0], key[1], key[2], le.Uint16(key[3:])
	r.n = 0
	for key = key[5:]; len(key) >= 3; key = key[3:] {
		r.blocks[r.n] = block{id: key[0], fork: key[1], imageInfo: key[2]}
		r.n++
	}
}

// newKind codes the key of a kind that was not met before.
func (m *model) newKind(key []byte) {
	d := &m.dict
	n := int(m.Uint(ctxKindKey, uint64(len(key))))
	if m.decoding {
		if n < 5 || n > 5+3*(maxBlockID+1) || (n-5)%3 != 0 || len(d.kinds) >= maxKinds-1 {
			m.corrupt("key of a kind")
			return
		}
		key = d.key[:n]
	}
	for i := range key {
		key[i] = m.Byte(ctxKindKey+uint32(i+1)<<8, key[i])
	}
	if m.decoding && !validKey(key) {
		m.corrupt("key of a kind")
		return
	}
	i := len(d.kinds)
	if i < cap(d.kinds) {
		d.kinds = d.kinds[:i+1]
	} else {
		d.kinds = append(d.kinds, kind{})
	}
	k := &d.kinds[i]
	*k = kind{index: i, key: append(k.key[:0], key...), ctx: rangecoder.Hash(uint32(i)+1, 0x77)}
	d.kindIndex[string(key)] = i
}

// validKey reports whether the blocks of a key come in order and refer to a relation.
func validKey(key []byte) bool {
	if key[2]&shapeMainShort != 0 && key[2]&shapeMainLong != 0 || key[2] > 15 {
		return false
	}
	last := -1
	for b := key[5:]; len(b) > 0; b = b[3:] {
		if int(b[0]) <= last || b[0] > maxBlockID || last < 0 && b[1]&forkSameRel != 0 {
			return false
		}
		last = int(b[0])
	}
	return true
}

// relations codes the relation of every block.
func (m *model) relations(r *record) {
	d := &m.dict
	for i := range r.blocks[:r.n] {
		k := &r.blocks[i]
		if k.fork&forkSameRel != 0 {
			k.rel, k.relation = r.blocks[i-1].rel, r.blocks[i-1].relation
			continue
		}
		ctx := rangecoder.Hash(r.kind.ctx+uint32(i), ctxRel+uint32(r.xact.lastRel)<<8)
		expected := &d.nextRel[ctx%predictions]
		guess := int(*expected)
		hit := guess < len(d.rels) && d.rels[guess].id == k.relation
		if !m.Flag(ctx, 0, hit) {
			guess = m.otherRelation(k, rangecoder.Hash(r.kind.ctx+uint32(i), ctxRelIndex))
		}
		if guess >= len(d.rels) {
			m.corrupt("unknown relation")
			return
		}
		*expected = uint16(guess)
		k.rel = d.rels[guess]
		k.relation = k.rel.id
		r.xact.lastRel = guess
	}
}

// otherRelation codes a relation by its number, a new one by its identity.
func (m *model) otherRelation(k *block, ctx uint32) int {
	d := &m.dict
	index := len(d.rels)
	if !m.decoding {
		if known, ok := d.relIndex[k.relation]; ok {
			index = known
		}
	}
	if index = m.index(ctx, index); index != len(d.rels) || index >= maxRelations-1 {
		return index
	}
	var near relation
	if index > 0 {
		near = d.rels[index-1].id
	}
	for i := range k.relation {
		k.relation[i] = m.Byte(rangecoder.Hash(uint32(i)<<8|uint32(near[i]), ctxRelID), k.relation[i])
	}
	d.relIndex[k.relation] = index
	d.addRelation(k.relation)
	return index
}

// holds reports whether the dictionary knows or has room for what the parsed record refers to.
func (d *dictionary) holds(r *record) bool {
	if len(d.kinds) >= maxKinds-1 {
		if _, known := d.kindIndex[string(r.appendKey(d.key[:0]))]; !known {
			return false
		}
	}
	return len(d.rels)+r.n < maxRelations-1
}

func (d *dictionary) addRelation(id relation) {
	i := len(d.rels)
	if i < cap(d.rels) {
		d.rels = d.rels[:i+1]
	} else {
		d.rels = append(d.rels, nil)
	}
	if d.rels[i] == nil {
		d.rels[i] = new(relState)
	}
	*d.rels[i] = relState{index: i, id: id, ctx: rangecoder.Hash(uint32(i)+1, 0x99)}
}

// planOf returns the plan of a record whose kind and relations are known.
func (m *model) planOf(r *record) *plan {
	d := &m.dict
	rel := 0
	if r.n > 0 {
		rel = r.blocks[0].rel.index + 1
	}
	key := uint32(r.kind.index)<<16 | uint32(rel)
	cached := &d.planCache[key*0x9E3779B1>>(32-planCacheLog)]
	if p := *cached; p != nil && p.rel == rel && p.kind == r.kind.index {
		return p
	}
	i, known := d.planIndex[key]
	if !known {
		i = min(len(d.plans), maxPlans-1)
		if i == len(d.plans) {
			d.addPlan()
		}
		p := d.plans[i]
		*p = plan{index: i, kind: r.kind.index, rel: rel, ctx: rangecoder.Hash(key, 0xbb), main: p.main[:0], blocks: p.blocks}
		for j := range p.blocks {
			p.blocks[j] = planBlock{data: p.blocks[j].data[:0]}
		}
		d.planIndex[key] = i
	}
	*cached = d.plans[i]
	return d.plans[i]
}

func (d *dictionary) addPlan() {
	i := len(d.plans)
	if i < cap(d.plans) {
		d.plans = d.plans[:i+1]
	} else {
		d.plans = append(d.plans, nil)
	}
	if d.plans[i] == nil {
		d.plans[i] = new(plan)
	}
}
