package slots

import (
	"fmt"

	"walproxy/protocol"
	"walproxy/slots/statefile"
)

const (
	storeKind    = "slots"
	storeVersion = 1
)

// storeFile is the JSON of the file of slots.
type storeFile struct {
	Slots []storedSlot `json:"slots"`
}

type storedSlot struct {
	Name        string `json:"name"`
	RestartLSN  string `json:"restart_lsn"` // X/X; 0/0 if not known
	Invalidated string `json:"invalidated,omitempty"`
}

func encodeStore(slots []Slot) ([]byte, error) {
	file := storeFile{Slots: make([]storedSlot, 0, len(slots))}
	for _, s := range slots {
		if !s.Temporary {
			file.Slots = append(file.Slots, storedSlot{Name: s.Name, RestartLSN: s.RestartLSN.String(), Invalidated: s.Invalidated})
		}
	}
	return statefile.Encode(storeKind, storeVersion, file)
}

// decodeStore reads the file of slots. Errors: class statefile.ErrCorrupt, or *statefile.VersionError.
func decodeStore(content []byte) ([]Slot, error) {
	var file storeFile
	if err := statefile.Decode(content, storeKind, storeVersion, &file); err != nil {
		return nil, err
	}
	slots, seen := make([]Slot, 0, len(file.Slots)), make(map[string]bool, len(file.Slots))
	for _, s := range file.Slots {
		lsn, err := protocol.ParseLSN(s.RestartLSN)
		if err != nil {
			return nil, fmt.Errorf("%w: slot %q: %w", statefile.ErrCorrupt, s.Name, err)
		}
		if err := protocol.CheckSlotName(s.Name); err != nil {
			return nil, fmt.Errorf("%w: %w", statefile.ErrCorrupt, err)
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("%w: slot %q is there twice", statefile.ErrCorrupt, s.Name)
		}
		seen[s.Name] = true
		slots = append(slots, Slot{Name: s.Name, RestartLSN: lsn, SavedLSN: lsn, Invalidated: s.Invalidated})
	}
	return slots, nil
}
