package walsender

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"walproxy/protocol"
)

// emptyNode has an identity and no WAL.
type emptyNode struct{}

func (emptyNode) Identity() (protocol.Identity, bool) {
	return protocol.Identity{SystemID: 1, SegmentSize: 1 << 24, WALBlockSize: 8192, ServerVersion: "18.4"}, true
}
func (emptyNode) Position() (protocol.Timeline, protocol.LSN)     { return 1, 0x1000000 }
func (emptyNode) History(protocol.Timeline) ([]byte, bool)        { return nil, false }
func (emptyNode) Create(string, int32, SlotOptions) error         { return protocol.ErrSlotsFull }
func (emptyNode) Read(string) (protocol.LSN, error)               { return 0, protocol.ErrSlotMissing }
func (emptyNode) Drop(context.Context, string, int32, bool) error { return protocol.ErrSlotMissing }
func (emptyNode) Acquire(string, int32) (Slot, error)             { return nil, protocol.ErrSlotMissing }
func (emptyNode) DropTemporary(int32)                             {}
func (emptyNode) Register(Info) Consumer                          { return nobody{} }
func (emptyNode) Open(_ context.Context, _ protocol.Timeline, start protocol.LSN, _ bool) (Outgoing, error) {
	return NewPlain(noWAL{}, start, 8192, func() protocol.LSN { return start })
}

type nobody struct{}

func (nobody) State(State)                  {}
func (nobody) Sent(protocol.LSN)            {}
func (nobody) Report(protocol.Status)       {}
func (nobody) Feedback(protocol.HSFeedback) {}
func (nobody) Close()                       {}

type noWAL struct{}

func (noWAL) Append(ctx context.Context, _ []byte, _ int) (protocol.LSN, []byte, error) {
	<-ctx.Done()
	return 0, nil, ctx.Err()
}
func (noWAL) Close() error { return nil }

// FuzzSession feeds a whole session: startup, commands, copy. Whatever comes, it ends when the client has gone, and what
// it answers is a sequence of whole messages.
func FuzzSession(f *testing.F) {
	start := func(parameters string) []byte {
		body := append(binary.BigEndian.AppendUint32(nil, 3<<16), parameters...)
		return append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)
	}
	message := func(kind byte, body string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...)
	}
	good := start("user\x00u\x00replication\x001\x00options\x00-c a.b=c\x00\x00")
	for _, seed := range [][]byte{
		nil, []byte("GET / HTTP/1.0\r\n\r\n"), good, {0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f},
		bytes.Join([][]byte{good, message('Q', "IDENTIFY_SYSTEM\x00"), message('P', "x"), message('S', ""), message('X', "")}, nil),
		bytes.Join([][]byte{good, message('Q', "START_REPLICATION 0/1000000\x00"), message('d', "r"), message('d', "?")}, nil),
		bytes.Join([][]byte{good, message('Q', "START_REPLICATION 0/1000000\x00"), message('d', string(protocol.Status{ReplyRequested: true}.Append(nil))), message('c', "")}, nil),
		start("user\x00u\x00replication\x00maybe\x00\x00"),
	} {
		f.Add(seed)
	}
	server, err := New(emptyNode{}, emptyNode{}, emptyNode{}, Options{}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) { checkMessages(t, answerTo(t, server, input)) })
}

// answerTo returns what a session says to input before the client hangs up. The session must end then.
func answerTo(t *testing.T, server *Server, input []byte) []byte {
	t.Helper()
	client, conn := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		newSession(server, conn, true).run(t.Context())
	}()
	go func() {
		_, _ = client.Write(input) // the server may hang up first
		_ = client.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	}()
	answer, _ := io.ReadAll(client)
	client.Close()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatalf("the session goes on without a client: %q", input)
	}
	return answer
}

func checkMessages(t *testing.T, answer []byte) {
	for len(answer) > 0 && answer[0] == 'N' && (len(answer) < 2 || answer[1] != 0) {
		answer = answer[1:] // to a request for encryption
	}
	if bytes.HasPrefix(answer, []byte("EFATAL:")) {
		return // to a protocol before 3
	}
	for len(answer) > 0 {
		if len(answer) < 5 || strings.IndexByte("RSKZENTDCWcdv", answer[0]) < 0 {
			t.Fatalf("not a message: %q", answer)
		}
		n := 1 + int(binary.BigEndian.Uint32(answer[1:]))
		if n > len(answer) {
			t.Fatalf("incomplete message: %q", answer)
		}
		answer = answer[n:]
	}
}

func FuzzUsers(f *testing.F) {
	f.Add([]byte("# users\n\nalice:secret\nbob:SCRAM-SHA-256$4096:c2FsdA==$" + strings.Repeat("A", 43) + "=:" + strings.Repeat("A", 43) + "=\r\n"))
	f.Add([]byte(":x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		secrets, err := parseUsers(content)
		if err != nil {
			return
		}
		for name, secret := range secrets {
			v, err := ParseVerifier(secret)
			if err != nil {
				continue
			}
			again, err := ParseVerifier(v.secret())
			if err != nil || again.secret() != v.secret() {
				t.Fatalf("%s: the verifier does not read back", name)
			}
		}
	})
}

func FuzzSwitches(f *testing.F) {
	f.Add(`-c a=b --c-d=e\ f`)
	f.Fuzz(func(t *testing.T, text string) {
		switches, err := parseSwitches(text)
		if err != nil {
			return
		}
		s := newSettings(protocol.Identity{ServerVersion: "15.18"}, "u", time.Minute)
		for _, p := range switches {
			if s.set(p) == nil {
				if _, _, ok := s.show(p.name); !ok {
					t.Fatalf("%q was set and is not there", p.name)
				}
			}
		}
		if s.walSenderTimeout() < 0 {
			t.Fatal("negative timeout")
		}
	})
}
