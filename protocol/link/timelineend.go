package link

import (
	"bytes"
	"fmt"

	"walproxy/protocol"
)

// TimelineEnd is the payload of a CodecTimelineEnd frame: which timeline goes on, and its history file verbatim.
type TimelineEnd struct {
	Next    protocol.Timeline
	History []byte
}

// NewTimelineEnd returns the sealed frame that says: tli ended at end, and next goes on. history is copied.
func NewTimelineEnd(tli protocol.Timeline, end protocol.LSN, next protocol.Timeline, history []byte) (Frame, error) {
	if next <= tli || len(history) > protocol.MaxHistoryBytes {
		return Frame{}, fmt.Errorf("end timeline %d at %s: next timeline %d with a history of %d bytes is not possible", tli, end, next, len(history))
	}
	f := Frame{Timeline: tli, Start: end, Codec: CodecTimelineEnd}
	f.Payload = append(le.AppendUint32(make([]byte, 0, 4+len(history)), uint32(next)), history...)
	f.RawSum = Checksum(nil)
	f.Seal()
	return f, nil
}

// TimelineEnd decodes the payload of a CodecTimelineEnd frame. History is a copy.
func (f *Frame) TimelineEnd() (TimelineEnd, error) {
	if f.Codec != CodecTimelineEnd || len(f.Payload) < 4 {
		return TimelineEnd{}, f.corrupt("not an end of timeline")
	}
	end := TimelineEnd{Next: protocol.Timeline(le.Uint32(f.Payload)), History: bytes.Clone(f.Payload[4:])}
	if end.Next <= f.Timeline {
		return TimelineEnd{}, f.corrupt(fmt.Sprintf("timeline %d does not follow", end.Next))
	}
	return end, nil
}
