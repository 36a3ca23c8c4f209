package model

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"walproxy/protocol/wal/waltest"
)

// scratch are the parts of a model that hold nothing from one piece to the next, or that nothing refers to after a reset.
var scratch = []string{"Coder", "wal", "at", "end", "decoding", "rec", "scratch", "headCheck", "cost", "observe", "dict.key", "store.ring", "store.free",
	"near.maps", "compressed.opener.encoder", "compressed.opener.zstd", "compressed.opener.raw", "compressed.opener.again", "compressed.encoder",
	"compressed.content", "compressed.stored", "compressed.block"}

// Nothing of an earlier stream may steer a later one: a decoder that begins with the later one has not seen the earlier.
// So a model that has coded all the samples is, after its reset, what a new one is.
func TestResetLeavesNothing(t *testing.T) {
	used, fresh := newPair(), newPair()
	for _, s := range waltest.Samples(t) {
		used.reset(s.Start)
		used.pass(t, s.WAL)
	}
	used.reset(0x5000000)
	fresh.reset(0x5000000)
	for name, m := range map[string][2]*model{"encoder": {used.enc.m, fresh.enc.m}, "decoder": {used.dec.m, fresh.dec.m}} {
		if path := differ("", reflect.ValueOf(m[0]).Elem(), reflect.ValueOf(m[1]).Elem()); path != "" {
			t.Errorf("%s: %s survives a reset", name, path)
		}
	}
}

// differ returns the first place where a and b are not the same; memory that a keeps for later use does not count.
func differ(path string, a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return same(path, a.IsNil() == b.IsNil())
		}
		return differ(path, a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			name := a.Type().Field(i).Name
			if path != "" {
				name = path + "." + name
			}
			if slices.Contains(scratch, name) {
				continue
			}
			if p := differ(name, a.Field(i), b.Field(i)); p != "" {
				return p
			}
		}
		return ""
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return same(path, false)
		}
		for i := range a.Len() {
			if p := differ(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); p != "" {
				return p
			}
		}
		return ""
	case reflect.Map:
		return same(path, a.Len() == 0 && b.Len() == 0)
	}
	return same(path, a.Equal(b))
}

func same(path string, ok bool) string {
	if ok {
		return ""
	}
	return path
}
