package main

import (
	"testing"

	"walproxy/recompress"
)

// TestSettings: whatever is measured is something that walproxy bench does not refuse.
func TestSettings(t *testing.T) {
	all := (&bench{}).settings()
	for _, s := range all {
		codec, err := recompress.ParseCodec(s.codec)
		if err != nil {
			t.Fatal(err)
		}
		if err := (recompress.Options{Codec: codec, Level: s.level}).CheckLevel(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	if len(all) < 8 {
		t.Errorf("%d settings: %v", len(all), all)
	}
}
