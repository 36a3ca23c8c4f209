package walreceiver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
)

// logged is a logger's core that passes the text of errors on.
type logged struct {
	zapcore.LevelEnabler
	errors chan string
}

func observe() (*zap.Logger, *logged) {
	l := &logged{LevelEnabler: zap.DebugLevel, errors: make(chan string, 1000)}
	return zap.New(l), l
}

func (l *logged) With([]zapcore.Field) zapcore.Core { return l }

func (l *logged) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) {
		return c.AddCore(e, l)
	}
	return c
}

func (l *logged) Write(_ zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			l.errors <- err.Error()
		}
	}
	return nil
}

func (l *logged) Sync() error { return nil }

// await returns when an error with that text has been logged.
func (l *logged) await(t *testing.T, text string) {
	t.Helper()
	var seen []string
	for {
		select {
		case got := <-l.errors:
			if strings.Contains(got, text) {
				return
			}
			seen = append(seen, got)
		case <-time.After(10 * time.Second):
			t.Fatalf("no error with %q, but %q", text, seen)
		}
	}
}

// TestRefusedLogin: what to do is said, and the receiver goes on trying.
func TestRefusedLogin(t *testing.T) {
	for code, text := range map[string]string{
		protocol.CodeInvalidPassword:       "password file",
		protocol.CodeInvalidAuthorization:  "pg_hba.conf",
		protocol.CodeInsufficientPrivilege: "REPLICATION attribute",
		protocol.CodeTooManyConnections:    "53300",
	} {
		f := newFake(t, nil)
		f.refuse = protocol.Fatalf(code, "no")
		logger, logs := observe()
		start(t, walreceiver.Options{Conninfo: f.conninfo(), Logger: logger}, newMemSink())
		logs.await(t, text)
		logs.await(t, text)
	}
}

// TestBadOptions: what cannot work is refused before anything starts.
func TestBadOptions(t *testing.T) {
	for name, o := range map[string]walreceiver.Options{
		"port":          {Conninfo: "host=a port=x"},
		"attrs":         {Conninfo: "host=a target_session_attrs=best"},
		"no equals":     {Conninfo: "host"},
		"crl":           {Conninfo: "host=a sslcrl=/tmp/x"},
		"keepalives":    {Conninfo: "host=a keepalives_idle=soon"},
		"slot":          {Conninfo: "host=a", CreateSlot: true},
		"distance":      {Conninfo: "host=a", ResetDistance: 3 << 20},
		"interval":      {Conninfo: "host=a", StatusInterval: -1},
		"backoff":       {Conninfo: "host=a", BackoffMin: time.Hour, BackoffMax: time.Second},
		"gss":           {Conninfo: "host=a gssencmode=require"},
		"secret in URI": {Conninfo: "postgres://u:hunter2@h:x/"},
	} {
		_, err := walreceiver.New(o)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestErrorTexts: every error says where and what.
func TestErrorTexts(t *testing.T) {
	cause := errors.New("because")
	for _, err := range []error{
		&walreceiver.DivergedError{Timeline: 3, LSN: 0x1000000, Peer: "up"},
		&walreceiver.RemovedError{Timeline: 3, LSN: 0x1000000, Peer: "up", Err: cause},
		&walreceiver.BehindError{Timeline: 3, LSN: 0x1000000, Peer: "up", Err: cause},
		&walreceiver.TimelineError{Ours: 3, Theirs: 2, LSN: 0x1000000, Peer: "up", Why: "because"},
		&walreceiver.GapError{Timeline: 3, Want: 0x1000000, Got: 0x2000000, Peer: "up"},
	} {
		for _, part := range []string{"up", "0/1000000", "3"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%T does not say %q: %v", err, part, err)
			}
		}
	}
}
