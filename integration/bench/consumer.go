package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// reportEvery is how often a consumer reports at most: as often as a standby whose fsync takes so long.
const reportEvery = 10 * time.Millisecond

// consumer streams WAL from a server or a node by the bare protocol, drops it, and remembers when which LSN arrived.
type consumer struct {
	conn     *net.TCPConn
	raw      syscall.RawConn
	in       *bufio.Reader // of everything before the stream
	arrivals []arrival     // of the goroutine that runs stream; others read it after its end
	at       atomic.Uint64 // LSN behind what has arrived
	reports  atomic.Int64  // status messages sent
}

// arrival says when the WAL before end was here, and when the sender sent it.
type arrival struct {
	end      protocol.LSN
	here     time.Time
	sentTime time.Time
}

// dialConsumer opens a replication session.
func dialConsumer(port int) (*consumer, error) {
	conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// Small: what it holds when the stream begins is read through it.
	c := &consumer{conn: conn, raw: raw, in: bufio.NewReaderSize(conn, 4<<10)}
	startup := pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersionNumber,
		Parameters: map[string]string{"user": pgcluster.User, "replication": "true", "application_name": "bench"}}
	packet, err := startup.Encode(nil)
	if err == nil {
		_, err = conn.Write(packet)
	}
	if err == nil {
		err = c.until('Z')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to port %d: %w", port, err), conn.Close())
	}
	return c, nil
}

// until reads up to and with a message of one kind.
func (c *consumer) until(kind byte) error {
	for {
		got, body, err := c.next()
		if err != nil {
			return err
		}
		switch got {
		case 'E':
			return fmt.Errorf("refused: %q", body)
		case kind:
			return nil
		}
	}
}

// next returns the next message; body is valid until the following call.
func (c *consumer) next() (kind byte, body []byte, err error) {
	head, err := c.in.Peek(5)
	if err != nil {
		return 0, nil, err
	}
	kind, length := head[0], int(binary.BigEndian.Uint32(head[1:]))-4
	if length < 0 || length > maxMessageBytes {
		return 0, nil, fmt.Errorf("message %q of %d bytes", kind, length)
	}
	if _, err := c.in.Discard(5); err != nil {
		return 0, nil, err
	}
	if body, err = c.in.Peek(length); err == nil {
		_, err = c.in.Discard(length)
	}
	return kind, body, err
}

func (c *consumer) query(sql string, until byte) error {
	packet, err := (&pgproto3.Query{String: sql}).Encode(nil)
	if err == nil {
		_, err = c.conn.Write(packet)
	}
	if err == nil {
		err = c.until(until)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// start makes a slot, unless name is empty, and starts to stream.
func (c *consumer) start(name string, lsn protocol.LSN) error {
	slot := ""
	if name != "" {
		if err := c.query("CREATE_REPLICATION_SLOT "+name+" PHYSICAL RESERVE_WAL", 'Z'); err != nil {
			return err
		}
		slot = "SLOT " + name + " "
	}
	c.at.Store(uint64(lsn))
	return c.query("START_REPLICATION "+slot+"PHYSICAL "+lsn.String(), 'W')
}

// end asks how far the server or node is.
func (c *consumer) end() (protocol.LSN, error) {
	packet, err := (&pgproto3.Query{String: "IDENTIFY_SYSTEM"}).Encode(nil)
	if err == nil {
		_, err = c.conn.Write(packet)
	}
	for lsn := protocol.LSN(0); err == nil; {
		kind, body, errNext := c.next()
		switch {
		case errNext != nil:
			err = errNext
		case kind == 'D':
			var row pgproto3.DataRow
			if err = row.Decode(body); err == nil && len(row.Values) > 2 {
				lsn, err = protocol.ParseLSN(string(row.Values[2]))
			}
		case kind == 'Z':
			return lsn, nil
		}
	}
	return 0, err
}

// stream takes in WAL until the connection is closed, which is no error, and reports it as a standby does: what came in one go
// is reported together.
func (c *consumer) stream() error {
	var reported time.Time
	var buffer []byte
	head := make([]byte, 5+protocol.XLogDataHeaderBytes)
	for {
		answer, err := c.take(head)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		if now := time.Now(); answer || now.Sub(reported) >= reportEvery {
			reported = now
			if buffer, err = c.report(buffer, now); err != nil {
				return nil // closed
			}
		}
	}
}

const (
	keepaliveBytes  = 1 + 8 + 8 + 1
	maxMessageBytes = 200 << 10
)

// take takes in one message of a stream. The WAL in it is dropped unread. answer tells whether the sender asks for a report.
func (c *consumer) take(head []byte) (answer bool, err error) {
	short := head[:5+keepaliveBytes] // every message is at least as long
	if _, err := io.ReadFull(c.in, short); err != nil {
		return false, err
	}
	length := int(binary.BigEndian.Uint32(head[1:])) - 4
	if head[0] != 'd' || length < keepaliveBytes || length > maxMessageBytes {
		return false, fmt.Errorf("message %q of %d bytes: %q", head[0], length, short)
	}
	if head[5] != protocol.MessageXLogData {
		return head[5] == protocol.MessageKeepalive && short[len(short)-1] != 0, c.drop(length - keepaliveBytes)
	}
	if _, err := io.ReadFull(c.in, head[len(short):]); err != nil {
		return false, err
	}
	data, err := protocol.ParseXLogData(head[5:])
	if err != nil {
		return false, err
	}
	if at := protocol.LSN(c.at.Load()); data.Start != at {
		return false, fmt.Errorf("WAL at %s, want %s", data.Start, at)
	}
	n := length - protocol.XLogDataHeaderBytes
	if err := c.drop(n); err != nil {
		return false, err
	}
	end := data.Start + protocol.LSN(n)
	c.at.Store(uint64(end))
	c.arrivals = append(c.arrivals, arrival{end, time.Now(), data.SendTime})
	return false, nil
}

// nowhere is what bytes are dropped into; the kernel does not write to it.
var nowhere [maxMessageBytes]byte

// drop takes bytes from the socket without copying them, so that consumers leave the CPUs to what is measured.
func (c *consumer) drop(n int) error {
	held := min(n, c.in.Buffered())
	if _, err := c.in.Discard(held); err != nil {
		return err
	}
	for n -= held; n > 0; {
		var got int
		var errRead error
		err := c.raw.Read(func(fd uintptr) bool {
			got, _, errRead = syscall.Recvfrom(int(fd), nowhere[:n], syscall.MSG_TRUNC)
			return errRead != syscall.EAGAIN
		})
		if err = errors.Join(err, errRead); err != nil {
			return err
		}
		if got == 0 {
			return io.EOF
		}
		n -= got
	}
	return nil
}

func (c *consumer) report(buffer []byte, now time.Time) ([]byte, error) {
	lsn := protocol.LSN(c.at.Load())
	c.reports.Add(1)
	buffer = append(buffer[:0], 'd', 0, 0, 0, 0)
	buffer = protocol.Status{Write: lsn, Flush: lsn, Apply: lsn, SendTime: now}.Append(buffer)
	binary.BigEndian.PutUint32(buffer[1:], uint32(len(buffer)-1))
	_, err := c.conn.Write(buffer)
	return buffer, err
}
