package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticksPerSecond is the unit of /proc/PID/stat, the same on every Linux of today.
const ticksPerSecond = 100

// cpuSeconds returns how long a process and all its descendants that live have used a CPU.
func cpuSeconds(pid int) (float64, error) {
	children, err := childrenOf()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for pids := []int{pid}; len(pids) > 0; {
		p := pids[0]
		pids = append(pids[1:], children[p]...)
		stat, err := readStat(p)
		if err != nil && p != pid {
			continue // it has ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		sum += stat.seconds
	}
	return sum, nil
}

type procStat struct {
	parent  int
	seconds float64
}

// readStat reads /proc/PID/stat.
func readStat(pid int) (procStat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	_, rest, ok := strings.Cut(string(content), ") ") // the name before it may hold anything
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return procStat{}, fmt.Errorf("read /proc/%d/stat: %q", pid, content)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return procStat{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return procStat{parent: parent, seconds: float64(ticks) / ticksPerSecond}, nil
}

// childrenOf returns the processes that live, by their parents.
func childrenOf() (map[int][]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil {
			children[stat.parent] = append(children[stat.parent], pid)
		}
	}
	return children, nil
}
