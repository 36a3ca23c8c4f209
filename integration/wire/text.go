package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// text writes a message down, without what differs between two servers of one kind: values of rows (but with Values), texts of
// errors (but with Texts), keys.
func (c *Conn) text(m Message) string {
	switch m.Type {
	case 'R':
		return authentication(m.Body)
	case 'S':
		name, _, _ := bytes.Cut(m.Body, []byte{0})
		return "S " + string(name)
	case 'K':
		return fmt.Sprintf("K %d", len(m.Body)-4)
	case 'Z':
		return "Z " + string(m.Body)
	case 'C':
		return "C " + strings.TrimSuffix(string(m.Body), "\x00")
	case 'E', 'N':
		return c.failure(m)
	case 'T':
		return description(m.Body)
	case 'D':
		return c.row(m.Body)
	case 'v':
		return negotiation(m.Body)
	}
	return fmt.Sprintf("%c %d", m.Type, len(m.Body))
}

func authentication(body []byte) string {
	if len(body) < 4 {
		return "R ?"
	}
	code := binary.BigEndian.Uint32(body)
	if code == 10 { // SASL
		return "R 10 " + strings.Join(strings.Fields(strings.ReplaceAll(string(body[4:]), "\x00", " ")), " ")
	}
	return fmt.Sprintf("R %d", code)
}

// Fields returns the fields of an error or notice by their types.
func (m Message) Fields() map[byte]string {
	fields := map[byte]string{}
	for _, field := range bytes.Split(m.Body, []byte{0}) {
		if len(field) > 0 {
			fields[field[0]] = string(field[1:])
		}
	}
	return fields
}

func (c *Conn) failure(m Message) string {
	fields := m.Fields()
	text := fmt.Sprintf("%c %s %s", m.Type, fields['V'], fields['C'])
	if c.Texts {
		text += " " + fields['M']
		if fields['D'] != "" {
			text += " DETAIL " + fields['D']
		}
	}
	return text
}

// description shows each column as name:type/length/modifier.
func description(body []byte) string {
	text := "T"
	if len(body) < 2 {
		return text
	}
	count := binary.BigEndian.Uint16(body)
	rest := body[2:]
	for range count {
		name, after, found := bytes.Cut(rest, []byte{0})
		if !found || len(after) < 18 {
			return text + " ?"
		}
		text += fmt.Sprintf(" %s:%d/%d/%d", name, binary.BigEndian.Uint32(after[6:]),
			int16(binary.BigEndian.Uint16(after[10:])), int32(binary.BigEndian.Uint32(after[12:])))
		rest = after[18:]
	}
	return text
}

// row shows each value as it is with Values, else only NULLs and how many values there are.
func (c *Conn) row(body []byte) string {
	text := "D"
	if len(body) < 2 {
		return text
	}
	count := binary.BigEndian.Uint16(body)
	rest := body[2:]
	for range count {
		if len(rest) < 4 {
			return text + " ?"
		}
		length := int32(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		switch {
		case length < 0:
			text += " NULL"
			continue
		case int(length) > len(rest):
			return text + " ?"
		case c.Values:
			text += fmt.Sprintf(" %q", rest[:length])
		default:
			text += " value"
		}
		rest = rest[length:]
	}
	return text
}

func negotiation(body []byte) string {
	if len(body) < 8 {
		return "v ?"
	}
	names := strings.Fields(strings.ReplaceAll(string(body[8:]), "\x00", " "))
	return strings.TrimSpace(fmt.Sprintf("v %08x %d %s", binary.BigEndian.Uint32(body), binary.BigEndian.Uint32(body[4:]), strings.Join(names, " ")))
}
