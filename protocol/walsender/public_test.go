package walsender

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"walproxy/protocol"
)

// private is an error that says less in public.
type private struct{}

func (private) Error() string { return "/secret/file is damaged" }

func (private) Public() *protocol.Error {
	return protocol.Errorf(protocol.CodeDataCorrupted, "damaged")
}

// TestPublic: clients learn nothing of this machine's files.
func TestPublic(t *testing.T) {
	for _, c := range []struct {
		err        error
		code, text string
	}{
		{fmt.Errorf("x: %w", private{}), "XX001", "damaged"},
		{fmt.Errorf("x: %w", &fs.PathError{Op: "open", Path: "/secret", Err: fs.ErrPermission}), "XX000", "its log says why"},
		{fmt.Errorf("create slot \"s\": %w", &fs.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}), "53100", "No space left on device"},
		{fmt.Errorf("create slot \"s\": %w", &fs.PathError{Op: "write", Path: "/secret", Err: syscall.EDQUOT}), "53100", "No space left on device"},
		{errors.New("frames of another system"), "XX000", "frames of another system"},
	} {
		if got := public(c.err); got.Code != c.code || !strings.Contains(got.Message, c.text) || strings.Contains(got.Error(), "secret") {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
