package statefile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

type sample struct {
	Name   string            `json:"name"`
	Values map[string]string `json:"values"`
}

func TestRoundTrip(t *testing.T) {
	want := sample{Name: "a\nb\"ü", Values: map[string]string{"": "x", "y": "\x00"}}
	content, err := Encode("sample", 3, want)
	if err != nil {
		t.Fatal(err)
	}
	var got sample
	if err := Decode(content, "sample", 3, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %+v, %v", got, err)
	}
	var version *VersionError
	if err := Decode(content, "sample", 2, &got); !errors.As(err, &version) || version.Got != 3 || errors.Is(err, ErrCorrupt) {
		t.Fatalf("other version: %v", err)
	}
	if err := Decode(content, "other", 3, &got); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("other kind: %v", err)
	}
}

// TestEveryDamage cuts the file at every byte and flips every bit: it is never read as if it were whole.
func TestEveryDamage(t *testing.T) {
	content, err := Encode("sample", 1, sample{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte) {
		t.Helper()
		var got sample
		var version *VersionError
		if err := Decode(b, "sample", 1, &got); !errors.Is(err, ErrCorrupt) && !errors.As(err, &version) || got.Name != "" {
			t.Fatalf("%s: error %v, value %+v", what, err, got)
		}
	}
	for i := range content {
		refused("cut", content[:i])
		for bit := range 8 {
			b := []byte(string(content))
			b[i] ^= 1 << bit
			refused("flipped", b)
		}
	}
	refused("something appended", append([]byte(string(content)), "{}"...))
	refused("too long", []byte(strings.Repeat("x", MaxBytes+1)))
}

func FuzzDecode(f *testing.F) {
	content, err := Encode("sample", 1, sample{Name: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Add([]byte("walproxy sample 1 crc32c=00000000\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got sample
		if err := Decode(b, "sample", 1, &got); err != nil {
			return
		}
		again, err := Encode("sample", 1, got)
		if err != nil {
			t.Fatal(err)
		}
		var back sample
		if err := Decode(again, "sample", 1, &back); err != nil || !reflect.DeepEqual(back, got) {
			t.Fatalf("%+v comes back as %+v, %v", got, back, err)
		}
	})
}
