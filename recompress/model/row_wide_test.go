package model

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"walproxy/recompress/rangecoder"
)

// TestWideRow codes keys that are doubles, of which nothing but their size is alike, and now and then one that is something else.
func TestWideRow(t *testing.T) {
	const rows, seed = 3000, 11
	random := rand.New(rand.NewPCG(seed, 1))
	keys := make([][]byte, rows)
	for i := range keys {
		v := math.Float64bits(float64(random.Uint64()>>16) / (1 << 48))
		if random.IntN(50) == 0 {
			v = random.Uint64()
		}
		keys[i] = binary.LittleEndian.AppendUint64(nil, v)
		if random.IntN(200) == 0 {
			keys[i] = append(keys[i], "and more"[:random.IntN(9)]...)
		}
	}
	ctx := rangecoder.Hash(7, ctxKey)
	enc, dec := newModel(), newModel()
	enc.reset(1, 0)
	dec.reset(1, 0)
	dec.decoding = true
	var x xact
	enc.Encode(nil)
	wide := 0
	for _, key := range keys {
		x.renew()
		c := enc.rows.class(ctx)
		if at := c.sets[0]; at > 0 && enc.rows.sets[at-1].wide == 1 && len(key) == 8 {
			wide++
		}
		enc.row(c, key, 0, version{}, &x)
	}
	payload := enc.Finish()
	if wide < rows/2 || len(payload) > 7*rows {
		t.Errorf("seed %d: %d of %d keys as one number, %d bytes", seed, wide, rows, len(payload))
	}
	x = xact{}
	dec.Decode(payload)
	for i, key := range keys {
		x.renew()
		got := make([]byte, len(key))
		dec.row(dec.rows.class(ctx), got, 0, version{}, &x)
		if string(got) != string(key) {
			t.Fatalf("seed %d: key %d is % x, want % x", seed, i, got, key)
		}
	}
}
