package file

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"walproxy/archive"
)

// List implements archive.Store.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	return func(yield func(archive.Info, error) bool) {
		w := walk{dir: s.dir, prefix: prefix, after: after, yield: yield}
		if err := w.below(ctx, ""); err != nil && !errors.Is(err, errStop) {
			yield(archive.Info{}, failed("list", prefix, err))
		}
	}
}

// errStop means that the caller wants no more.
var errStop = errors.New("stop")

// walk is the state of one List.
type walk struct {
	dir           string
	prefix, after string
	yield         func(archive.Info, error) bool
}

// below shows the objects in the directory base, which ends with a slash or is empty for the root.
func (w *walk) below(ctx context.Context, base string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(w.dir, filepath.FromSlash(base)))
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing stored yet, or removed meanwhile
	}
	if err != nil {
		return err
	}
	// What lies below a directory sorts by its name and a slash.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		if !archive.ValidName(e.Name()) {
			continue
		}
		name := base + sortName(e)
		if e.IsDir() {
			if !w.mayHold(name) {
				continue
			}
			if err := w.below(ctx, name); err != nil {
				return err
			}
			continue
		}
		if !e.Type().IsRegular() || !strings.HasPrefix(name, w.prefix) || name <= w.after {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !w.yield(archive.Info{Name: name, Bytes: info.Size(), Modified: info.ModTime()}, nil) {
			return errStop
		}
	}
	return nil
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// mayHold reports whether objects that are wanted can lie below base, which ends with a slash.
func (w *walk) mayHold(base string) bool {
	if !strings.HasPrefix(base, w.prefix) && !strings.HasPrefix(w.prefix, base) {
		return false
	}
	return w.after < base || strings.HasPrefix(w.after, base)
}
