// Package wire speaks the PostgreSQL protocol byte by byte and writes down what a server answers, so that two servers can be
// compared: tests do the same to a PostgreSQL server and to a node, and the logs must be equal.
package wire

import (
	"crypto/md5"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// Codes in the place of a protocol version.
const (
	SSLRequest    = 80877103
	GSSENCRequest = 80877104
	CancelRequest = 80877102
	Protocol30    = 3 << 16
	Protocol32    = 3<<16 | 2
)

// patience bounds each wait for the server.
const patience = 20 * time.Second

// maxBytes bounds a message that is read.
const maxBytes = 64 << 20

// Message is one that the server sent. Type 0 is its end of the connection.
type Message struct {
	Type byte
	Body []byte
}

// Conn is a connection to a server and the log of what it said. Not safe for concurrent use.
type Conn struct {
	Log      []string // of all messages read so far, see Message.String
	Status   map[string]string
	PID      uint32
	Key      []byte
	conn     net.Conn
	Encoders // what to show of messages
}

// Encoders say how messages are written down.
type Encoders struct {
	Values bool // the values of rows, not only how long they are
	Texts  bool // the texts of errors
}

// Dial connects without saying anything.
func Dial(network, address string) (*Conn, error) {
	conn, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, Status: map[string]string{}}, nil
}

// Close closes the connection without a word.
func (c *Conn) Close() error { return c.conn.Close() }

// NetConn returns the connection itself.
func (c *Conn) NetConn() net.Conn { return c.conn }

// Send writes bytes as they are.
func (c *Conn) Send(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// Packet returns an untyped packet: length, code, body.
func Packet(code uint32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(binary.BigEndian.AppendUint32(b, code), body...)
}

// Startup returns a startup packet with these names and values.
func Startup(version uint32, parameters ...string) []byte {
	var body []byte
	for _, p := range parameters {
		body = append(append(body, p...), 0)
	}
	return Packet(version, append(body, 0))
}

// Typed returns a message of this type.
func Typed(kind byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body))), body...)
}

// Query returns a simple query.
func Query(text string) []byte { return Typed('Q', append([]byte(text), 0)) }

// Byte reads a single byte, the answer to a request for encryption, and enters it in the log; at the end of the connection it
// enters "closed".
func (c *Conn) Byte() (byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	var b [1]byte
	_, err := io.ReadFull(c.conn, b[:])
	switch {
	case isEnd(err):
		c.Log = append(c.Log, "closed")
		return 0, nil
	case err != nil:
		return 0, err
	}
	c.Log = append(c.Log, fmt.Sprintf("byte %c", b[0]))
	return b[0], nil
}

// Encrypt does the handshake of TLS, and enters the protocol that was selected.
func (c *Conn) Encrypt(config *tls.Config) error {
	encrypted := tls.Client(c.conn, config)
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	err := encrypted.Handshake()
	if err == nil {
		c.Log = append(c.Log, fmt.Sprintf("TLS alpn=%q", encrypted.ConnectionState().NegotiatedProtocol))
		c.conn = encrypted
	} else {
		c.Log = append(c.Log, "no TLS")
	}
	return nil
}

// isEnd reports whether the server has ended the connection, politely or not.
func isEnd(err error) bool {
	var alert *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &alert) && !errors.Is(err, os.ErrDeadlineExceeded)
}

// Next reads a message and enters it.
func (c *Conn) Next() (Message, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return Message{}, err
	}
	var head [5]byte
	if _, err := io.ReadFull(c.conn, head[:]); err != nil {
		if isEnd(err) {
			c.Log = append(c.Log, "closed")
			return Message{}, nil
		}
		return Message{}, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length < 4 || length > maxBytes {
		return Message{}, fmt.Errorf("message %q of %d bytes", head[0], length)
	}
	m := Message{Type: head[0], Body: make([]byte, length-4)}
	if _, err := io.ReadFull(c.conn, m.Body); err != nil {
		return Message{}, err
	}
	c.note(m)
	return m, nil
}

func (c *Conn) note(m Message) {
	switch m.Type {
	case 'S':
		name, value, _ := strings.Cut(strings.TrimSuffix(string(m.Body), "\x00"), "\x00")
		c.Status[name] = value
	case 'K':
		if len(m.Body) > 4 {
			c.PID, c.Key = binary.BigEndian.Uint32(m.Body), m.Body[4:]
		}
	}
	c.Log = append(c.Log, c.text(m))
}

// Until reads up to the first message of one of these types, or the end of the connection, and returns that one.
func (c *Conn) Until(types string) (Message, error) {
	for {
		m, err := c.Next()
		if err != nil || m.Type == 0 || strings.IndexByte(types, m.Type) >= 0 {
			return m, err
		}
	}
}

// Command sends a query and reads up to ReadyForQuery.
func (c *Conn) Command(text string) error {
	if err := c.Send(Query(text)); err != nil {
		return err
	}
	_, err := c.Until("Z")
	return err
}

// UntilQuietly is Until without entering CopyData; 'k' stands for a keepalive that asks for a reply, and 0 for the end.
func (c *Conn) UntilQuietly(types string) error {
	for {
		m, err := c.Next()
		if err != nil {
			return err
		}
		kind := m.Type
		if kind == 'd' {
			c.Log = c.Log[:len(c.Log)-1]
			if len(m.Body) == 18 && m.Body[0] == 'k' && m.Body[17] == 1 {
				kind = 'k'
			}
		}
		if kind == 0 || strings.IndexByte(types, kind) >= 0 {
			return nil
		}
	}
}

// Answer answers a request for authentication, which has been read, by what it asks for, and reads up to ReadyForQuery or the
// end. It answers nothing where no question is.
func (c *Conn) Answer(m Message, user, password string, b Binding) error {
	if m.Type != 'R' || len(m.Body) < 4 {
		return nil
	}
	given := password
	switch binary.BigEndian.Uint32(m.Body) {
	case 10:
		return c.Authenticate(password, b)
	case 5:
		inner := md5.Sum([]byte(password + user))
		outer := md5.Sum(append(hex.AppendEncode(nil, inner[:]), m.Body[4:]...))
		given = "md5" + hex.EncodeToString(outer[:])
		fallthrough
	case 3:
		if err := c.Send(Typed('p', append([]byte(given), 0))); err != nil {
			return err
		}
	}
	_, err := c.Until("Z")
	return err
}
