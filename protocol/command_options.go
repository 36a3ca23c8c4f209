package protocol

import "strings"

// option is one option of a command: a name and, if hasValue, what followed it.
type option struct {
	name     string
	value    token
	hasValue bool
}

// createOptions reads the options of CREATE_REPLICATION_SLOT in either form: bare words, or from version 15 on also a list
// in parentheses.
func (p *parser) createOptions() ([]option, error) {
	if p.major >= 15 && p.token.kind == tokenSymbol && p.token.text == "(" {
		return p.genericOptions()
	}
	var options []option
	for p.token.kind == tokenKeyword {
		switch p.token.text {
		case "RESERVE_WAL", "TWO_PHASE":
			options = append(options, option{name: upperKeyword(p.token)})
		case "EXPORT_SNAPSHOT", "NOEXPORT_SNAPSHOT", "USE_SNAPSHOT":
			options = append(options, option{name: "snapshot"})
		default:
			return nil, errSyntax()
		}
		p.advance()
	}
	return options, nil
}

// genericOptions reads a list in parentheses: name [value], ... An empty list is an error.
func (p *parser) genericOptions() ([]option, error) {
	var options []option
	p.advance()
	for {
		var o option
		switch p.token.kind {
		case tokenName:
			o.name = p.token.text
		case tokenKeyword:
			o.name = upperKeyword(p.token)
		default:
			return nil, errSyntax()
		}
		p.advance()
		switch p.token.kind {
		case tokenName, tokenString, tokenNumber:
			o.value, o.hasValue = p.token, true
			p.advance()
		}
		options = append(options, o)
		switch {
		case p.symbol(","):
		case p.symbol(")"):
			return options, nil
		default:
			return nil, errSyntax()
		}
	}
}

// reserveWAL returns the value of the only option that a physical slot has.
//
// Source: PostgreSQL src/backend/replication/walsender.c, parseCreateReplSlotOptions (13-18).
func reserveWAL(options []option) (bool, error) {
	reserve, seen := false, false
	for _, o := range options {
		switch o.name {
		case "reserve_wal":
			value, ok := o.boolean()
			if seen {
				return false, Errorf(CodeSyntaxError, "conflicting or redundant options")
			}
			if !ok {
				return false, Errorf(CodeSyntaxError, "%s requires a Boolean value", o.name)
			}
			reserve, seen = value, true
		case "snapshot", "two_phase", "failover":
			return false, Errorf(CodeSyntaxError, "conflicting or redundant options") // for logical slots only
		default:
			return false, Errorf(CodeInternalError, "unrecognized option: %s", o.name)
		}
	}
	return reserve, nil
}

// boolean reads an option's value as defGetBoolean does; no value means true.
func (o option) boolean() (value, ok bool) {
	if !o.hasValue {
		return true, true
	}
	if o.value.kind == tokenNumber {
		return o.value.number == 1, o.value.number <= 1
	}
	switch strings.ToLower(o.value.text) {
	case "true", "on":
		return true, true
	case "false", "off":
		return false, true
	}
	return false, false
}
