package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something wrong with the configuration.
type Problem struct {
	Key  string // path of the key, as in listen.auth.users[1].verifier; empty for the file as a whole
	Line int    // in the file; 0 if the key is not there
	What string
}

func (p Problem) String() string {
	text := p.What
	if p.Key != "" {
		text = p.Key + ": " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("line %d: %s", p.Line, text)
	}
	return text
}

// Error holds all problems of a configuration, in the order of the file.
type Error struct {
	File     string // empty without one
	Problems []Problem
}

func (e *Error) Error() string {
	name := "configuration"
	if e.File != "" {
		name += " " + e.File
	}
	if len(e.Problems) == 1 {
		return name + ": " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d problems", name, len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// problems collects. Only the first problem of a key is kept: others follow from it.
type problems struct {
	list  []Problem
	lines map[string]int // of the keys in the file
}

func (p *problems) add(key, format string, args ...any) {
	if !slices.ContainsFunc(p.list, func(have Problem) bool { return have.Key == key }) {
		p.list = append(p.list, Problem{Key: key, Line: p.lines[key], What: fmt.Sprintf(format, args...)})
	}
}

func (p *problems) addError(key string, err error) {
	if err != nil {
		p.add(key, "%s", err)
	}
}

// err returns nil if there are none.
func (p *problems) err(file string) error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{File: file, Problems: p.list}
}
