package config

import "walproxy/slots"

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
