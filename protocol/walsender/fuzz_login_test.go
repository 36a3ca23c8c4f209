package walsender

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

// FuzzLogin feeds everything up to the end of authentication, by each method that asks for something. Whatever comes, nobody
// gets in, the session ends with the client, and what it answers is a sequence of whole messages.
func FuzzLogin(f *testing.F) {
	start := func(user string) []byte {
		body := append(binary.BigEndian.AppendUint32(nil, 3<<16), "user\x00"+user+"\x00replication\x001\x00\x00"...)
		return append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)
	}
	message := func(body string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{'p'}, uint32(4+len(body))), body...)
	}
	first := message("SCRAM-SHA-256\x00\x00\x00\x00\x0bn,,n=,r=abc")
	for _, seed := range [][]byte{
		start("scram"), start("nobody"), bytes.Join([][]byte{start("scram"), first, message("c=biws,r=abc,p=AAAA")}, nil),
		bytes.Join([][]byte{start("scram"), message("SCRAM-SHA-256\x00\xff\xff\xff\xff")}, nil),
		bytes.Join([][]byte{start("scram"), message("SCRAM-SHA-256-PLUS\x00\x00\x00\x00\x20p=tls-server-end-point,,n=,r=abc")}, nil),
		bytes.Join([][]byte{start("md5"), message("md5" + strings.Repeat("0", 32) + "\x00")}, nil),
		bytes.Join([][]byte{start("password"), message("wrong\x00")}, nil), bytes.Join([][]byte{start("password"), message("\x00")}, nil),
	} {
		f.Add(seed)
	}
	users, err := NewUsers(map[string]string{"scram": "secret one", "md5": "md5" + strings.Repeat("a", 32), "password": "secret two"})
	if err != nil {
		f.Fatal(err)
	}
	access := Access{Passwords: users}
	for _, r := range []Rule{{Users: []string{"md5"}, Method: MethodMD5}, {Users: []string{"password"}, Method: MethodPassword}, {Method: MethodSCRAM}} {
		r.Type = ConnLocal
		checked, err := NewRule(r)
		if err != nil {
			f.Fatal(err)
		}
		access.Rules = append(access.Rules, checked)
	}
	server, err := New(emptyNode{}, emptyNode{}, emptyNode{}, Options{Access: access}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		answer := answerTo(t, server, input)
		checkMessages(t, answer)
		if bytes.Contains(answer, []byte("Z\x00\x00\x00\x05I")) {
			t.Fatalf("somebody was let in by %q", input)
		}
	})
}

func FuzzInitialResponse(f *testing.F) {
	f.Add([]byte("SCRAM-SHA-256\x00\x00\x00\x00\x02n,"))
	f.Fuzz(func(t *testing.T, body []byte) {
		chosen, data, err := initialResponse(body, []string{mechanismPlus, mechanism})
		if err == nil && (chosen != mechanism && chosen != mechanismPlus || len(data) > len(body)) {
			t.Fatalf("%q: %q, %q", body, chosen, data)
		}
		if err == nil {
			_ = checkBinding(data, chosen, true)
		}
	})
}
