package zstd3

import "math/bits"

// Counts below exactCounts have a bucket each when sorting; higher ones share one per power of two. The shared buckets are sorted
// afterwards, and so is the last exact one: its counts are equal, but a quicksort shuffles them all the same.
const (
	buckets     = 192
	logBuckets  = 158
	exactCounts = 165
	insertUpTo  = 8 // so many nodes are sorted by insertion
)

// bucketOf returns the bucket of a count; a higher count never has a lower bucket.
func bucketOf(count uint32) int {
	if count < exactCounts {
		return int(count)
	}
	return logBuckets + bits.Len32(count) - 1
}

// sort fills nodes with a leaf per symbol up to top, the most frequent first, and returns the index of the last that occurs. Among equal
// counts the lower symbol comes first, except where unstable and the count is high: there the order is that of the library's quicksort,
// which is visible in the codes.
func (h *huffman) sort(top int, unstable bool) (last int) {
	var start, end [buckets]int
	for _, n := range h.counts[:top+1] {
		if n > 0 {
			start[bucketOf(n)]++
		}
	}
	total := 0
	for b := buckets - 1; b >= 0; b-- {
		n := start[b]
		start[b], end[b] = total, total
		total += n
	}
	for s, n := range h.counts[:top+1] {
		if n > 0 {
			at := &end[bucketOf(n)]
			h.nodes[*at] = huffNode{count: n, symbol: uint8(s)}
			*at++
		}
	}
	for b := exactCounts - 1; b < buckets; b++ {
		if run := h.nodes[start[b]:end[b]]; len(run) > 1 {
			if unstable {
				quicksort(run)
			} else {
				insertionSort(run)
			}
		}
	}
	return total - 1
}

// insertionSort orders nodes by falling count and keeps equal ones in order.
func insertionSort(nodes []huffNode) {
	for i := 1; i < len(nodes); i++ {
		node := nodes[i]
		at := i
		for ; at > 0 && nodes[at-1].count < node.count; at-- {
			nodes[at] = nodes[at-1]
		}
		nodes[at] = node
	}
}

// quicksort orders nodes by falling count around the last node of each part; what it does to equal ones shows in the output. A part that
// was short to begin with is sorted by insertion; one that became short is split to the end.
func quicksort(nodes []huffNode) {
	if len(nodes) <= insertUpTo {
		insertionSort(nodes)
		return
	}
	for len(nodes) > 1 {
		last := len(nodes) - 1
		pivot := nodes[last].count
		split := 0
		for i := range nodes[:last] {
			if nodes[i].count > pivot {
				nodes[split], nodes[i] = nodes[i], nodes[split]
				split++
			}
		}
		nodes[split], nodes[last] = nodes[last], nodes[split]
		if split < last-split {
			quicksort(nodes[:split])
			nodes = nodes[split+1:]
		} else {
			quicksort(nodes[split+1:])
			nodes = nodes[:split]
		}
	}
}
