package spool

import (
	"walproxy/protocol"
	"walproxy/protocol/link"
)

// LineInfo is what a log holds of one timeline, window by window.
type LineInfo struct {
	TimelineSpan
	Windows []LineWindow
}

// LineWindow is one window of a line.
type LineWindow struct {
	Start         protocol.LSN // first byte held
	End           protocol.LSN // behind the last byte; the switch point, which may lie below Start, if the timeline ends here
	ResetDistance uint32       // bytes
	Sealed        bool
	Ended         bool // nothing is added any more
}

// Lines returns what is held from tli on: of tli itself the windows that begin at or behind start, of later timelines all of them.
func (l *Log) Lines(tli protocol.Timeline, start protocol.LSN) []LineInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var infos []LineInfo
	for _, line := range l.lines {
		if line.timeline < tli {
			continue
		}
		first := len(line.windows)
		for first > 0 && (line.timeline != tli || line.windows[first-1].header.Start >= start) {
			first--
		}
		info := LineInfo{TimelineSpan: TimelineSpan{Timeline: line.timeline, Begin: line.begin, End: line.end, Next: line.next}}
		for i := first; i < len(line.windows); i++ {
			w := line.windows[i]
			info.Windows = append(info.Windows, LineWindow{Start: w.header.Start, End: line.endOf(i), ResetDistance: w.header.ResetDistance,
				Sealed: w.header.Kind == link.WindowSealed, Ended: w.ended.Load()})
		}
		infos = append(infos, info)
	}
	return infos
}
