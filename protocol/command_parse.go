package protocol

import "strings"

// ParseCommand reads the one command of a simple Query, by the grammar of a major version (13 to 18). Notices, of severity
// NOTICE, are to be sent before the answer, also before an error.
//
// Errors are of type *Error: 0A000 for whatever does not begin with a replication keyword in upper case (SQL, lower case,
// nothing at all), 42601 for a bad command, XX000 for an option that does not exist.
//
// Source: PostgreSQL src/backend/replication/walsender.c, exec_replication_command; repl_gram.y (13-18).
func ParseCommand(text string, major int) (cmd Command, notices []*Error, err error) {
	p := &parser{scanner: scanner{rest: text, major: major}}
	first := p.next()
	parse := p.commands()[first.text]
	if first.kind != tokenKeyword || parse == nil {
		return nil, nil, errNotReplication
	}
	p.advance()
	cmd, err = parse()
	switch {
	case p.failure != "":
		return nil, p.notices, Errorf(CodeSyntaxError, "%s", p.failure)
	case err != nil:
		return nil, p.notices, err
	}
	return cmd, p.notices, nil
}

// ErrNotReplication is what a Query that is no replication command ends with on a connection without SQL.
var ErrNotReplication error = errNotReplication

var errNotReplication = Errorf(CodeFeatureNotSupported, "cannot execute SQL commands in WAL sender for physical replication")

// parser reads tokens with one token of look-ahead.
type parser struct {
	scanner
	token token
}

func (p *parser) advance() { p.token = p.next() }

func (p *parser) commands() map[string]func() (Command, error) {
	return map[string]func() (Command, error){
		"IDENTIFY_SYSTEM":         func() (Command, error) { return p.end(IdentifySystem{}) },
		"SHOW":                    p.show,
		"TIMELINE_HISTORY":        p.timelineHistory,
		"START_REPLICATION":       p.startReplication,
		"CREATE_REPLICATION_SLOT": p.createSlot,
		"READ_REPLICATION_SLOT":   p.readSlot,
		"DROP_REPLICATION_SLOT":   p.dropSlot,
		"ALTER_REPLICATION_SLOT":  p.alterSlot,
		"BASE_BACKUP":             func() (Command, error) { return BaseBackup{}, nil },
		"UPLOAD_MANIFEST":         func() (Command, error) { return p.end(UploadManifest{}) },
	}
}

func errSyntax() error { return Errorf(CodeSyntaxError, "syntax error") }

// end accepts a semicolon and demands that nothing follows.
func (p *parser) end(cmd Command) (Command, error) {
	p.symbol(";")
	if p.token.kind != tokenEnd {
		return nil, errSyntax()
	}
	return cmd, nil
}

// keyword takes the keyword if it is next.
func (p *parser) keyword(word string) bool { return p.take(tokenKeyword, word) }

// symbol takes the symbol if it is next.
func (p *parser) symbol(text string) bool { return p.take(tokenSymbol, text) }

func (p *parser) take(kind tokenKind, text string) bool {
	if p.token.kind != kind || p.token.text != text {
		return false
	}
	p.advance()
	return true
}

func (p *parser) name() (string, error) {
	if p.token.kind != tokenName {
		return "", errSyntax()
	}
	name := p.token.text
	p.advance()
	return name, nil
}

func (p *parser) timeline() (Timeline, error) {
	if p.token.kind != tokenNumber {
		return 0, errSyntax()
	}
	if p.token.number == 0 {
		return 0, Errorf(CodeSyntaxError, "invalid timeline %d", p.token.number)
	}
	tli := Timeline(p.token.number)
	p.advance()
	return tli, nil
}

func (p *parser) show() (Command, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if p.symbol(".") {
		second, err := p.name()
		if err != nil {
			return nil, err
		}
		name += "." + second
	}
	return p.end(Show{Name: name})
}

func (p *parser) timelineHistory() (Command, error) {
	tli, err := p.timeline()
	if err != nil {
		return nil, err
	}
	return p.end(ReadTimelineHistory{Timeline: tli})
}

func (p *parser) startReplication() (Command, error) {
	var cmd StartReplication
	var err error
	if p.keyword("SLOT") {
		cmd.HasSlot = true
		if cmd.Slot, err = p.name(); err != nil {
			return nil, err
		}
		if p.keyword("LOGICAL") {
			return Logical{Command: cmd.Keyword()}, nil
		}
	}
	p.keyword("PHYSICAL")
	if p.token.kind != tokenLSN {
		return nil, errSyntax()
	}
	cmd.Start = p.token.lsn
	p.advance()
	if p.keyword("TIMELINE") {
		if cmd.Timeline, err = p.timeline(); err != nil {
			return nil, err
		}
	}
	return p.end(cmd)
}

func (p *parser) createSlot() (Command, error) {
	var cmd CreateReplicationSlot
	var err error
	if cmd.Slot, err = p.name(); err != nil {
		return nil, err
	}
	cmd.Temporary = p.keyword("TEMPORARY")
	if p.keyword("LOGICAL") {
		return Logical{Command: cmd.Keyword()}, nil
	}
	if !p.keyword("PHYSICAL") {
		return nil, errSyntax()
	}
	options, err := p.createOptions()
	if err != nil {
		return nil, err
	}
	if _, err := p.end(cmd); err != nil {
		return nil, err
	}
	if cmd.ReserveWAL, err = reserveWAL(options); err != nil {
		return nil, err
	}
	return cmd, nil
}

func (p *parser) readSlot() (Command, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	return p.end(ReadReplicationSlot{Slot: name})
}

func (p *parser) dropSlot() (Command, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	return p.end(DropReplicationSlot{Slot: name, Wait: p.keyword("WAIT")})
}

func (p *parser) alterSlot() (Command, error) {
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if p.token.kind != tokenSymbol || p.token.text != "(" {
		return nil, errSyntax()
	}
	if _, err := p.genericOptions(); err != nil {
		return nil, err
	}
	return p.end(AlterReplicationSlot{Slot: name})
}

// upperKeyword turns a keyword that is used as a name into that name.
func upperKeyword(t token) string { return strings.ToLower(t.text) }
