// Package statefile is the form of the small files in which a node keeps what it must not lose: one line of text that says
// what the file is, in which version, and the checksum of the rest; the rest is JSON. It is pure: bytes in, values out.
//
//	walproxy identity 1 crc32c=9AE0DAAF
//	{"system_id":"7301234567890123456",...}
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// MaxBytes bounds a state file. Ten thousand slots fit.
const MaxBytes = 4 << 20

// ErrCorrupt says that the bytes are not what was written.
var ErrCorrupt = errors.New("corrupt state file")

// VersionError says that a file is of a version this program does not know; it may be fine for a newer one.
type VersionError struct {
	What string
	Got  int
	Want int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s file has version %d, this walproxy knows version %d: written by a newer walproxy?", e.What, e.Got, e.Want)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the content of a state file. what is a word without blanks; value is what encoding/json can write.
func Encode(what string, version int, value any) ([]byte, error) {
	body, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", what, err)
	}
	body = append(body, '\n')
	head := fmt.Appendf(nil, "walproxy %s %d crc32c=%08X\n", what, version, crc32.Checksum(body, castagnoli))
	if len(head)+len(body) > MaxBytes {
		return nil, fmt.Errorf("encode %s: %d bytes exceed the limit of %d", what, len(body), MaxBytes)
	}
	return append(head, body...), nil
}

// Decode reads a file that Encode made into value, a pointer. value is untouched unless the checksum is right.
//
// Errors: ErrCorrupt, or *VersionError.
func Decode(content []byte, what string, version int, value any) error {
	if len(content) > MaxBytes {
		return fmt.Errorf("%w: %d bytes exceed the limit of %d", ErrCorrupt, len(content), MaxBytes)
	}
	line, body, found := bytes.Cut(content, []byte("\n"))
	words := strings.Split(string(line), " ")
	if !found || len(words) != 4 || words[0] != "walproxy" || words[1] != what {
		return fmt.Errorf("%w: it does not begin as a file of kind %q does", ErrCorrupt, what)
	}
	got, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return fmt.Errorf("%w: version %q", ErrCorrupt, words[2])
	}
	if int(got) != version {
		return &VersionError{What: what, Got: int(got), Want: version}
	}
	if words[3] != fmt.Sprintf("crc32c=%08X", crc32.Checksum(body, castagnoli)) {
		return fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if decoder.More() {
		return fmt.Errorf("%w: something follows the value", ErrCorrupt)
	}
	return nil
}
