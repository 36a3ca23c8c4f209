package walsender_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/klauspost/compress/zstd"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/walsender"
)

// linkAnswer is what a node says to BASE_BACKUP on a link, as protocol/link/FORMAT.md describes it: the answer in blocks of plain bytes.
// The checksum of the block in which the byte at wrong lies is not right; -1: all are.
func linkAnswer(t *testing.T, answer []byte, wrong int) []byte {
	t.Helper()
	var blocks []byte
	for at := 0; at < len(answer); {
		raw := answer[at:min(len(answer), at+100<<10)]
		items := append(binary.AppendUvarint([]byte{0}, uint64(len(raw))), raw...)
		sum := crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli))
		if at <= wrong && wrong < at+len(raw) {
			sum ^= 1 << 17
		}
		for _, field := range []uint32{uint32(len(raw)), uint32(len(items)), sum} {
			blocks = binary.LittleEndian.AppendUint32(blocks, field)
		}
		blocks = append(blocks, items...)
		at += len(raw)
	}
	var out []byte
	encoder, err := zstd.NewWriter(nil, zstd.WithWindowSize(512<<10), zstd.WithEncoderCRC(false))
	if err != nil {
		t.Fatal(err)
	}
	stream := encoder.EncodeAll(blocks, nil)
	out = append(out, typed('H', []byte{0, 0, 0})...)
	for len(stream) > 0 {
		n := min(len(stream), 64<<10)
		out = append(out, typed('d', append([]byte{link.MessageBackup}, stream[:n]...))...)
		stream = stream[n:]
	}
	out = append(out, typed('c', nil)...)
	return protocol.AppendCommandComplete(out, "BASE_BACKUP")
}

// TestBackupDecodedWrongly: what does not have the checksum of what the server said never completes a backup, wherever that is: in what
// comes before the data, within a message of it, or in the last words. The client sees a refusal or the connection end, and the log says why.
func TestBackupDecodedWrongly(t *testing.T) {
	want := backupAnswer(700 << 10)
	answer := append(bytes.Clone(want), encoded(&pgproto3.ReadyForQuery{TxStatus: 'I'})...)
	for _, wrong := range []int{-1, 0, len(answer) / 2, len(answer) - 1} {
		script := linkAnswer(t, answer, wrong)
		relay := newRelayed(func(server net.Conn) { play(t, map[string][]byte{"BASE_BACKUP": script})(server) })
		relay.isNode = true
		h := serveTCP(t, newNode("15.9", begin, wal(begin, 1000)), walsender.Options{Relay: relay})
		c := h.connect(t)
		c.query("BASE_BACKUP")
		if wrong < 0 {
			if got := readAnswer(t, c.conn); !bytes.Equal(got, want) {
				t.Errorf("%d bytes came, not what the server said", len(got))
			}
			continue
		}
		got := c.until('Z')
		if strings.Contains(got, "C(BASE_BACKUP)") || !strings.HasSuffix(got, "closed") && !strings.HasSuffix(got, "E(ERROR 08006) Z(I)") {
			t.Errorf("byte %d of %d is wrong: ...%s", wrong, len(answer), got[max(0, len(got)-200):])
		}
		if n := h.warnings.FilterMessage("relayed command failed").Len(); n != 1 {
			t.Errorf("byte %d of %d is wrong: the log says so %d times", wrong, len(answer), n)
		}
	}
}
