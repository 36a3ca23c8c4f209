package config

import (
	"fmt"
	"strconv"
	"strings"
)

// PolicyKind says whose position is reported to the upstream.
type PolicyKind uint8

const (
	AckNone     PolicyKind = iota // nothing is reported
	AckSpool                      // this node's own
	AckMin                        // the least of all consumers
	AckAny                        // a position that N consumers have reached
	AckConsumer                   // that of one consumer, by name
)

// Policy is one of acknowledge.write, flush and apply.
type Policy struct {
	Kind     PolicyKind
	N        int    // of AckAny
	Consumer string // of AckConsumer: its slot, or else its application_name
}

// The policies without arguments.
var (
	PolicyNone  = Policy{Kind: AckNone}
	PolicySpool = Policy{Kind: AckSpool}
	PolicyMin   = Policy{Kind: AckMin}
)

func (p *Policy) parse(text string) error {
	word, argument, more := strings.Cut(text, " ")
	argument = strings.TrimSpace(argument)
	switch {
	case !more && word == "none":
		*p = PolicyNone
	case !more && word == "spool":
		*p = PolicySpool
	case !more && word == "min":
		*p = PolicyMin
	case word == "any":
		n, err := strconv.Atoi(argument)
		if err != nil || n < 1 {
			return fmt.Errorf("%q: want a number of consumers above 0, as in any 2", text)
		}
		*p = Policy{Kind: AckAny, N: n}
	case word == "consumer" && argument != "":
		*p = Policy{Kind: AckConsumer, Consumer: argument}
	default:
		return fmt.Errorf("%q is not one of spool, min, any N, consumer NAME, none", text)
	}
	return nil
}

func (p Policy) String() string {
	switch p.Kind {
	case AckSpool:
		return "spool"
	case AckMin:
		return "min"
	case AckAny:
		return "any " + strconv.Itoa(p.N)
	case AckConsumer:
		return "consumer " + p.Consumer
	}
	return "none"
}
