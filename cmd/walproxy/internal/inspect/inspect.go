// Package inspect lists what window files hold: windows, frames, totals. It opens files for reading and changes nothing.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"walproxy/archive"
	"walproxy/protocol/link"
	"walproxy/slots/spool"
)

// ErrDamaged says that the listing names damage.
var ErrDamaged = errors.New("damaged")

// Options choose what is listed.
type Options struct {
	WindowsOnly bool // no line per frame
	Check       bool // decode every frame and compare with the checksum of its WAL
}

// List writes what path holds to w: a window file, or all window files in and below a directory, by timeline and LSN.
//
// Errors: one of class ErrDamaged if anything is damaged; the listing is complete nevertheless. Others if path cannot be
// read or holds no window.
func List(w io.Writer, path string, o Options) error {
	files, base, err := windowFiles(path)
	if err != nil {
		return err
	}
	l := &listing{w: w, options: o}
	for i, file := range files {
		l.last = i == len(files)-1 || filepath.Dir(files[i+1]) != filepath.Dir(file)
		name, err := filepath.Rel(base, file)
		if err != nil {
			return err
		}
		if err := l.file(file, name); err != nil {
			return err
		}
	}
	if len(files) > 1 {
		l.printf("total, %d windows: %s\n", len(files), l.total)
	}
	if l.err != nil {
		return fmt.Errorf("write listing: %w", l.err)
	}
	if l.damaged > 0 {
		return fmt.Errorf("%w in %d places", ErrDamaged, l.damaged)
	}
	return nil
}

// windowFiles returns the window files in the order of their names, which is that of timelines and LSNs.
func windowFiles(path string) (files []string, base string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	switch {
	case info.Mode().IsRegular():
		if err := checkName(path); err != nil {
			return nil, "", err
		}
		return []string{path}, filepath.Dir(path), nil
	case !info.IsDir():
		return nil, "", fmt.Errorf("%s is neither a file nor a directory", path)
	}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed by a running node
		}
		if err == nil && !entry.IsDir() && strings.HasSuffix(file, spool.WindowSuffix) {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if len(files) == 0 {
		return nil, "", fmt.Errorf("%s holds no window files (*%s): is it a data directory?", path, spool.WindowSuffix)
	}
	return files, path, nil
}

// checkName refuses a file that neither is called like a window nor begins like one.
func checkName(path string) error {
	if strings.HasSuffix(path, spool.WindowSuffix) {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	magic := make([]byte, len(link.WindowMagic))
	if _, err := io.ReadFull(file, magic); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	switch string(magic) {
	case link.WindowMagic:
		return nil
	case archive.Magic:
		return fmt.Errorf("%s is an object of an archive: walproxy archive list and verify read it", path)
	}
	return fmt.Errorf("%s is not a window file (*%s)", path, spool.WindowSuffix)
}
