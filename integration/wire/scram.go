package wire

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"

	"github.com/xdg-go/scram"
)

// Mechanisms of SASL.
const (
	SCRAM     = "SCRAM-SHA-256"
	SCRAMPlus = "SCRAM-SHA-256-PLUS"
)

// Binding is what a client says of channel binding.
type Binding struct {
	Mechanism string // that is chosen
	Flag      string // of the first message: n (cannot), y (could, but was not offered it) or p
	Wrong     bool   // binds to something else than the server's certificate
}

// Authenticate answers the server's request for SCRAM, which has been read, and reads up to ReadyForQuery or the end.
func (c *Conn) Authenticate(password string, b Binding) error {
	client, err := scram.SHA256.NewClientUnprepped("", password, "")
	if err != nil {
		return err
	}
	conversation, err := c.conversation(client, b)
	if err != nil {
		return err
	}
	first, err := conversation.Step("")
	if err != nil {
		return err
	}
	body := append([]byte(b.Mechanism), 0)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(first))), first...)
	if err := c.Send(Typed('p', body)); err != nil {
		return err
	}
	m, err := c.Next()
	if err != nil || m.Type != 'R' {
		return err
	}
	last, err := conversation.Step(string(m.Body[4:]))
	if err != nil {
		return fmt.Errorf("server's first message: %w", err)
	}
	if err := c.Send(Typed('p', []byte(last))); err != nil {
		return err
	}
	_, err = c.Until("Z")
	return err
}

func (c *Conn) conversation(client *scram.Client, b Binding) (*scram.ClientConversation, error) {
	encrypted, ok := c.conn.(*tls.Conn)
	switch {
	case b.Flag == "y":
		return client.NewConversationAdvertisingChannelBinding(), nil
	case b.Flag == "n" || !ok:
		return client.NewConversation(), nil
	}
	state := encrypted.ConnectionState()
	binding, err := scram.NewTLSServerEndpointBinding(&state)
	if err != nil {
		return nil, err
	}
	if b.Wrong {
		other := sha256.Sum256([]byte("other"))
		binding.Data = other[:]
	}
	return client.NewConversationWithChannelBinding(binding), nil
}
