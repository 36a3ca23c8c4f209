package zstd3

// grow builds the Huffman tree over the sorted leaves nodes[:last+1] and sets every leaf's bits. Of a leaf and an inner node with the same
// count the inner node is joined first.
func (h *huffman) grow(last int) {
	leaf, inner := last, firstInner
	root := firstInner + last - 1
	for made := firstInner; made <= root; made++ {
		sum := uint32(0)
		for range 2 {
			var child int
			if leaf >= 0 && (inner == made || h.nodes[leaf].count < h.nodes[inner].count) {
				child = leaf
				leaf--
			} else {
				child = inner
				inner++
			}
			h.nodes[child].parent = uint16(made)
			sum += h.nodes[child].count
		}
		h.nodes[made].count = sum
	}
	h.nodes[root].bits = 0
	for i := root - 1; i >= firstInner; i-- {
		h.nodes[i].bits = h.nodes[h.nodes[i].parent].bits + 1
	}
	for i := range h.nodes[:last+1] {
		h.nodes[i].bits = h.nodes[h.nodes[i].parent].bits + 1
	}
}

// limit shortens the codes of the sorted leaves nodes[:last+1] to at most most bits and returns the longest length. Cutting overdraws the
// code space; the debt, counted in codes of the longest length, is paid by lengthening the cheapest leaves.
func (h *huffman) limit(last, most int) int {
	deepest := int(h.nodes[last].bits)
	if deepest <= most {
		return deepest
	}
	debt := 0
	i := last
	for ; int(h.nodes[i].bits) > most; i-- {
		debt += 1<<(deepest-most) - 1<<(deepest-int(h.nodes[i].bits))
		h.nodes[i].bits = uint8(most)
	}
	for int(h.nodes[i].bits) == most {
		i--
	}
	debt >>= deepest - most

	// rarest holds, per number of bits below most, the last leaf of that length.
	var rarest [maxWeight + 2]int
	for n := range rarest {
		rarest[n] = none
	}
	for current, at := most, i; at >= 0; at-- {
		if bits := int(h.nodes[at].bits); bits < current {
			current = bits
			rarest[most-bits] = at
		}
	}
	for debt > 0 {
		debt -= h.lengthen(&rarest, debt, most)
	}
	// Lengthening a short code may pay more than was owed; shorten leaves again.
	for ; debt < 0; debt++ {
		if rarest[1] == none {
			for int(h.nodes[i].bits) == most {
				i--
			}
			rarest[1] = i
		}
		rarest[1]++
		h.nodes[rarest[1]].bits--
	}
	return most
}

// none marks a code length that no leaf has.
const none = -1

// lengthen adds a bit to the code of one leaf and returns how much debt that pays.
func (h *huffman) lengthen(rarest *[maxWeight + 2]int, debt, most int) int {
	n := 1
	for debt>>n > 0 {
		n++
	}
	// A leaf that pays all at once is taken unless two leaves that pay half cost less.
	for ; n > 1; n-- {
		here, half := rarest[n], rarest[n-1]
		if here == none {
			continue
		}
		if half == none || h.nodes[here].count <= 2*h.nodes[half].count {
			break
		}
	}
	for n <= maxWeight && rarest[n] == none {
		n++
	}
	at := rarest[n]
	h.nodes[at].bits++
	if rarest[n-1] == none {
		rarest[n-1] = at
	}
	rarest[n] = none
	if at > 0 && int(h.nodes[at-1].bits) == most-n {
		rarest[n] = at - 1
	}
	return 1 << (n - 1)
}
