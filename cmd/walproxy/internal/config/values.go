package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"walproxy/recompress"
)

// The values that are words. Their parsers refuse any other.
type (
	LinkMode   string // how the upstream is asked for frames
	SQLMode    string // what becomes of SQL sessions
	AuthMethod string // how consumers prove who they are
	Codec      string // name of a recompress.Codec
	WhenFull   string // what happens at the spool's cap
	LogLevel   string
	LogFormat  string
	TLSVersion string // as PostgreSQL spells it; empty: no bound
	Plaintext  string // where connections without TLS are possible
	Names      []string
)

const (
	LinkAuto LinkMode = "auto" // frames if the upstream is a node, plain WAL otherwise
	LinkOff  LinkMode = "off"

	SQLRefuse SQLMode = "refuse"
	SQLRelay  SQLMode = "relay" // those of listen.sql_users

	AuthSCRAM AuthMethod = "scram-sha-256"
	AuthTrust AuthMethod = "trust" // everybody; loopback addresses and unix sockets only

	PlaintextLocal Plaintext = "local" // on loopback addresses and unix sockets
	PlaintextAllow Plaintext = "allow" // everywhere

	WhenFullBlock WhenFull = "block" // stop reading upstream
	WhenFullShed  WhenFull = "shed"  // invalidate the slot furthest behind
)

func oneOf[T ~string](target *T, text string, words ...T) error {
	if !slices.Contains(words, T(text)) {
		names := make([]string, len(words))
		for i, w := range words {
			names[i] = string(w)
		}
		return fmt.Errorf("%q is not one of %s", text, strings.Join(names, ", "))
	}
	*target = T(text)
	return nil
}

func (m *LinkMode) parse(text string) error   { return oneOf(m, text, LinkAuto, LinkOff) }
func (m *SQLMode) parse(text string) error    { return oneOf(m, text, SQLRefuse, SQLRelay) }
func (m *AuthMethod) parse(text string) error { return oneOf(m, text, AuthSCRAM, AuthTrust) }
func (w *WhenFull) parse(text string) error   { return oneOf(w, text, WhenFullBlock, WhenFullShed) }
func (l *LogLevel) parse(text string) error   { return oneOf(l, text, "debug", "info", "warn", "error") }
func (f *LogFormat) parse(text string) error  { return oneOf(f, text, "auto", "console", "json") }

func (v *TLSVersion) parse(text string) error {
	return oneOf(v, text, "", "TLSv1.2", "TLSv1.3")
}
func (w *Plaintext) parse(text string) error { return oneOf(w, text, PlaintextLocal, PlaintextAllow) }

// parse reads names that commas separate, as in pg_hba.conf.
func (n *Names) parse(text string) error {
	*n = Names{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*n = append(*n, name)
		}
	}
	return nil
}

func (c *Codec) parse(text string) error {
	if _, err := recompress.ParseCodec(text); err != nil {
		return err
	}
	*c = Codec(text)
	return nil
}

// Recompress returns the codec. c has been checked.
func (c Codec) Recompress() recompress.Codec {
	codec, _ := recompress.ParseCodec(string(c))
	return codec
}

// Options returns what recompress takes. r has been checked.
func (r Recompress) Options() recompress.Options {
	o := recompress.Options{
		Codec: r.Codec.Recompress(), Level: r.Level, ResetDistance: uint32(r.ResetDistance), Compress: r.Compress.recompress(),
		MaxRecordBytes: int64(r.MaxRecordBytes), RecordThreshold: int64(r.RecordThreshold),
	}
	for _, e := range r.Except {
		o.Except = append(o.Except, e.Relations)
	}
	return o
}

// Bytes is a size, written with a unit: 4MiB.
type Bytes uint64

const (
	KiB Bytes = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

var units = []struct {
	name string
	size Bytes
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

func (b *Bytes) parse(text string) (err error) {
	*b, err = ParseBytes(text)
	return err
}

// ParseBytes reads a whole number with one of the units B, KiB, MiB, GiB, TiB, or 0.
func ParseBytes(text string) (Bytes, error) {
	if text == "0" {
		return 0, nil
	}
	for _, unit := range units {
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(number, " "), 10, 63)
		if err != nil {
			break
		}
		if Bytes(n) > (1<<63-1)/unit.size {
			return 0, fmt.Errorf("size %q is too large", text)
		}
		return Bytes(n) * unit.size, nil
	}
	return 0, fmt.Errorf("%q is not a size: want a whole number with a unit (B, KiB, MiB, GiB, TiB), as in 4MiB", text)
}

func (b Bytes) String() string {
	for _, unit := range units {
		if b != 0 && b%unit.size == 0 {
			return strconv.FormatUint(uint64(b/unit.size), 10) + unit.name
		}
	}
	return "0"
}
