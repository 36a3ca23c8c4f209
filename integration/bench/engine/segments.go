package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"walproxy/protocol"
)

// readSegments returns the WAL of the segments in dir, which are contiguous, and where it starts.
func readSegments(dir string) (start protocol.LSN, content []byte, err error) {
	names, err := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9A-F]", 24)))
	if err != nil {
		return 0, nil, err
	}
	slices.Sort(names)
	for i, name := range names {
		segment, err := os.ReadFile(name)
		if err != nil {
			return 0, nil, err
		}
		if i == 0 {
			if _, start, err = protocol.ParseSegmentName(filepath.Base(name), uint64(len(segment))); err != nil {
				return 0, nil, err
			}
		}
		content = append(content, segment...)
	}
	return start, content, nil
}
