package model

// Cost names what an Encoder spends bits on.
type Cost int

// The fields that costs are attributed to.
const (
	costPageHeader Cost = iota
	costBytes
	costXact
	costKind
	costRelation
	costLength
	costBlock
	costOffset
	costMain
	costTupleHeader
	costValue
	costText
	costKey
	costTime
	costPrune
	costImageHeader
	costImageItems
	costImageTuples
	costImageValues
	costImageRaw
	costCount
)

var costNames = [costCount]string{"page header", "bytes", "transaction", "kind", "relation", "length", "block number", "offset",
	"main data", "tuple header", "value", "text", "index key", "time", "prune", "image header", "image items", "image tuple headers",
	"image values", "image raw"}

// Costs adds up what an Encoder spent, in 1/256 bit.
type Costs struct {
	Spent [costCount]int64
	Kinds [1 << 12]KindCost // by resource manager and upper half of the info byte: rmid<<4 | info>>4
	last  int64
	begun int64
}

// KindCost is what the records of one kind took.
type KindCost struct {
	Records, Bytes int64 // before
	Spent          int64 // after, in 1/256 bit
}

func (c Cost) String() string { return costNames[c] }

// Names returns what the elements of Costs.Spent stand for.
func (c *Costs) Names() []string { return costNames[:] }

// mark attributes what was spent since the last mark.
func (m *model) mark(field Cost) {
	if m.cost != nil && !m.decoding {
		now := m.Bits()
		m.cost.Spent[field] += now - m.cost.last
		m.cost.last = now
	}
}

// markRecord attributes what a record took to its kind.
func (m *model) markRecord(r *record) {
	if m.cost != nil && !m.decoding {
		k := &m.cost.Kinds[int(r.rmid)<<4|int(r.info>>4)]
		k.Records++
		k.Bytes += int64(len(r.raw))
		k.Spent += m.cost.last - m.cost.begun
		m.cost.begun = m.cost.last
	}
}
