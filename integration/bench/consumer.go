package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/integration/pgcluster"
	"walproxy/protocol"
)

// reportEvery is how often a consumer reports at most: as often as a standby whose fsync takes so long.
const reportEvery = 10 * time.Millisecond

// consumer streams WAL from a server or a node by the bare protocol, drops it, and remembers when which LSN arrived.
type consumer struct {
	conn     net.Conn
	in       *bufio.Reader
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
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	c := &consumer{conn: conn, in: bufio.NewReaderSize(conn, 256<<10)}
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
	if length < 0 || length > 200<<10 {
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

// stream takes in WAL until the connection is closed, which is no error, and reports it as a standby does: what came in one go
// is reported together.
func (c *consumer) stream() error {
	var reported time.Time
	var buffer []byte
	for {
		kind, body, err := c.next()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || kind != 'd' || len(body) == 0 {
			return fmt.Errorf("stream: message %q, %w", kind, err)
		}
		answer := false
		switch body[0] {
		case protocol.MessageXLogData:
			data, err := protocol.ParseXLogData(body)
			if err != nil {
				return err
			}
			end := data.Start + protocol.LSN(len(data.Data))
			if at := protocol.LSN(c.at.Load()); data.Start != at {
				return fmt.Errorf("stream: WAL at %s, want %s", data.Start, at)
			}
			c.at.Store(uint64(end))
			c.arrivals = append(c.arrivals, arrival{end, time.Now(), data.SendTime})
		case protocol.MessageKeepalive:
			answer = body[len(body)-1] != 0
		}
		if now := time.Now(); answer || c.in.Buffered() == 0 && now.Sub(reported) >= reportEvery {
			reported = now
			if buffer, err = c.report(buffer, now); err != nil {
				return nil // closed
			}
		}
	}
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
