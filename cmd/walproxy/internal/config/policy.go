package config

import (
	"walproxy/recompress"
	"walproxy/slots"
)

// Rule is one of acknowledge.write, flush and apply.
type Rule struct{ slots.Rule }

func (r *Rule) parse(text string) error {
	rule, err := slots.ParseRule(text)
	if err == nil {
		r.Rule = rule
	}
	return err
}

// Policy returns the three rules together.
func (a Acknowledge) Policy() slots.Policy {
	return slots.Policy{Write: a.Write.Rule, Flush: a.Flush.Rule, Apply: a.Apply.Rule}
}

// Policy is the name of a recompress.Policy, which says what kinds of work are compressed.
type Policy string

func (c *Policy) parse(text string) error {
	_, err := recompress.ParsePolicy(text)
	if err == nil {
		*c = Policy(text)
	}
	return err
}

func (c Policy) recompress() recompress.Policy {
	policy, err := recompress.ParsePolicy(string(c))
	if err != nil {
		return recompress.CompressAll // parse refuses others
	}
	return policy
}

// Relations is one of recompress.except.
type Relations struct{ recompress.Relations }

func (r *Relations) parse(text string) error {
	relations, err := recompress.ParseRelations(text)
	if err == nil {
		r.Relations = relations
	}
	return err
}
