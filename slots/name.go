package slots

import "fmt"

// MaxNameBytes is the longest slot name, one less than PostgreSQL's NAMEDATALEN.
const MaxNameBytes = 63

// CheckName returns an error of class ErrInvalidName, with the server's words, unless name is a slot name that PostgreSQL
// accepts: lower case letters, digits and underscores.
//
// Source: PostgreSQL src/backend/replication/slot.c, ReplicationSlotValidateName (13-18).
func CheckName(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "is too short"
	case len(name) > MaxNameBytes:
		problem = "is too long"
	}
	for i := 0; problem == "" && i < len(name); i++ {
		if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			problem = "contains invalid character"
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: replication slot name %q %s", ErrInvalidName, name, problem)
}
