package slots

import (
	"fmt"
	"strconv"
	"strings"
)

// RuleKind is where an acknowledged position comes from.
type RuleKind uint8

// The kinds of rules. What each promises about WAL below the position that is reported:
const (
	RuleNone     RuleKind = iota // nothing is reported
	RuleSpool                    // this node has it (write: received; flush: fsynced)
	RuleMin                      // this node has it, and so has every consumer that was connected and reports such a position
	RuleAny                      // this node has it, and so have at least Count consumers
	RuleConsumer                 // this node has it, and so has a consumer called Name
)

// Rule says how one of the three positions is found.
type Rule struct {
	Kind  RuleKind
	Count int    // of RuleAny, at least 1
	Name  string // of RuleConsumer: its application_name, in any case
}

// maxRuleCount bounds N of "any N".
const maxRuleCount = 1000

// ParseRule reads the text of a rule: none, spool, min, any N, consumer NAME.
func ParseRule(text string) (Rule, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "none" && rest == "":
		return Rule{Kind: RuleNone}, nil
	case word == "spool" && rest == "":
		return Rule{Kind: RuleSpool}, nil
	case word == "min" && rest == "":
		return Rule{Kind: RuleMin}, nil
	case word == "any":
		if n, err := strconv.ParseUint(rest, 10, 16); err == nil && n >= 1 && n <= maxRuleCount {
			return Rule{Kind: RuleAny, Count: int(n)}, nil
		}
		return Rule{}, fmt.Errorf("parse acknowledgement rule %q: want a number from 1 to %d after any", text, maxRuleCount)
	case word == "consumer":
		if rest != "" {
			return Rule{Kind: RuleConsumer, Name: rest}, nil
		}
		return Rule{}, fmt.Errorf("parse acknowledgement rule %q: want an application_name after consumer", text)
	}
	return Rule{}, fmt.Errorf("parse acknowledgement rule %q: want none, spool, min, any N, or consumer NAME", text)
}

// String returns the text that ParseRule reads.
func (r Rule) String() string {
	switch r.Kind {
	case RuleSpool:
		return "spool"
	case RuleMin:
		return "min"
	case RuleAny:
		return fmt.Sprintf("any %d", r.Count)
	case RuleConsumer:
		return "consumer " + r.Name
	}
	return "none"
}

// Policy says what a node reports upstream, each position by its own rule.
type Policy struct {
	Write, Flush, Apply Rule
}

// DefaultPolicy promises what this node has on disk, and nothing about replay.
func DefaultPolicy() Policy {
	return Policy{Write: Rule{Kind: RuleSpool}, Flush: Rule{Kind: RuleSpool}, Apply: Rule{Kind: RuleNone}}
}

// Validate returns an error for a policy that cannot be kept: a node does not replay WAL, so apply comes from consumers
// or not at all; and an upstream that learns of no written position cannot shut down.
func (p Policy) Validate() error {
	if p.Apply.Kind == RuleSpool {
		return fmt.Errorf("acknowledgement of apply: a node replays nothing, so spool cannot be had; want none, min, any N, or consumer NAME")
	}
	if p.Write.Kind == RuleNone {
		return fmt.Errorf("acknowledgement of write: none would keep the upstream from shutting down; want spool, min, any N, or consumer NAME")
	}
	return nil
}
