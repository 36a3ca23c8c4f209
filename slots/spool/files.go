package spool

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"walproxy/protocol"
	"walproxy/slots/fs"
)

// WindowFile is a window's file in a data directory, by its name.
type WindowFile struct {
	Path     string
	Timeline protocol.Timeline
	Start    protocol.LSN // first byte held
}

// Files lists the window files of the data directory dir in the order of timelines and LSNs. It only reads names and takes no
// lock, so a node may be running; Walk reads one of them. fsys nil is the operating system's.
func Files(fsys fs.FS, dir string) ([]WindowFile, error) {
	if fsys == nil {
		fsys = fs.OS{}
	}
	root := path.Join(dir, "spool")
	timelines, err := fsys.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list spool: %w", err)
	}
	var files []WindowFile
	for _, entry := range timelines { // in the order of names, which is that of numbers
		tli, ok := parseHex(entry, 8)
		if !ok {
			continue
		}
		names, err := fsys.ReadDir(path.Join(root, entry))
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention was faster
		}
		if err != nil {
			return nil, fmt.Errorf("list spool: %w", err)
		}
		for _, name := range names {
			stem, isWindow := strings.CutSuffix(name, WindowSuffix)
			if start, ok := parseHex(stem, 16); ok && isWindow {
				files = append(files, WindowFile{path.Join(root, entry, name), protocol.Timeline(tli), protocol.LSN(start)})
			}
		}
	}
	return files, nil
}
