package bench

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// resetPeak returns memory that is not needed and makes the kernel forget the peak so far.
//
// Source: Linux proc(5), /proc/pid/clear_refs.
func resetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // where it cannot, the peak is that since the start
}

// peakBytes returns the largest resident memory of the process since resetPeak, or, where the kernel does not tell, what the
// runtime got from it since the start.
func peakBytes() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64); err == nil {
					return kib << 10
				}
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}
