package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"walproxy/archive"
	"walproxy/protocol"
	"walproxy/recompress"
)

// Pushed says what Push did.
type Pushed struct {
	Name       string // of the object
	Existed    bool   // the same was in the archive already
	WALBytes   int64  // of the file
	Bytes      int64  // of the object
	Mismatches uint64 // frames that did not decode to their WAL and left raw. Ever above 0 is a defect
}

// Push stores a file of pg_wal: a complete segment as a WAL object, a .history, .backup or .partial file as it is. It is durable
// in the store on return. What is there already is success if it is the same.
//
// Errors: of class archive.ErrNotWAL if the file is not what its name says; *archive.IdentityError before anything is stored if
// the archive is another cluster's; *archive.ConflictError if it holds something else; those of the store.
func Push(ctx context.Context, store archive.Store, path string, o recompress.Options) (Pushed, error) {
	var done Pushed
	var err error
	if archive.PlainFile(filepath.Base(path)) {
		done, err = pushPlain(ctx, store, path)
	} else {
		done, err = pushSegment(ctx, store, path, o)
	}
	if err != nil {
		return done, fmt.Errorf("push %s: %w", path, err)
	}
	return done, nil
}

func pushSegment(ctx context.Context, store archive.Store, path string, o recompress.Options) (done Pushed, err error) {
	s, err := openSegment(path)
	if err != nil {
		return done, err
	}
	defer func() { _ = s.Close() }() // it was only read
	a, err := archive.Create(ctx, store, s.id)
	if err != nil {
		return done, err
	}
	var builder archive.Builder
	defer func() { err = errors.Join(err, builder.Close()) }()
	if done.Mismatches, err = s.build(ctx, &builder, o); err != nil {
		return done, err
	}
	object, err := builder.Finish()
	if err != nil {
		return done, err
	}
	done.Name, done.Bytes, done.WALBytes = object.Header.Name(), object.Header.Bytes, int64(s.id.SegmentSize)
	done.Existed, err = a.Put(ctx, object)
	return done, err
}

func pushPlain(ctx context.Context, store archive.Store, path string) (done Pushed, err error) {
	file, err := os.Open(path)
	if err != nil {
		return done, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return done, err
	}
	id, err := checkPlain(file, info.Size())
	if err != nil {
		return done, err
	}
	a, err := archive.Create(ctx, store, id)
	if err != nil {
		return done, err
	}
	name := filepath.Base(path)
	done.Name, done.WALBytes, done.Bytes = archive.FileName(name), info.Size(), info.Size()
	done.Existed, err = a.PutFile(ctx, archive.File{Name: name, Content: file, Bytes: info.Size()})
	return done, err
}

// checkPlain checks a file by what its name says and returns whose it is.
func checkPlain(file *os.File, size int64) (archive.Identity, error) {
	path, name := file.Name(), filepath.Base(file.Name())
	if strings.HasSuffix(name, ".partial") {
		header, err := firstPage(file)
		if err != nil {
			return archive.Identity{}, notWAL(path, "%v", err)
		}
		if size != int64(header.SegmentSize) {
			return archive.Identity{}, notWAL(path, "it has %d bytes; segments of this cluster have %d", size, header.SegmentSize)
		}
		return identityOf(header), nil
	}
	if size > protocol.MaxHistoryBytes || size == 0 {
		return archive.Identity{}, notWAL(path, "it has %d bytes", size)
	}
	if number, isHistory := strings.CutSuffix(name, ".history"); isHistory {
		content := make([]byte, size)
		if _, err := file.ReadAt(content, 0); err != nil && !errors.Is(err, io.EOF) {
			return archive.Identity{}, err
		}
		tli, err := strconv.ParseUint(number, 16, 32)
		if err == nil {
			_, err = protocol.ParseHistory(protocol.Timeline(tli), content)
		}
		if err != nil {
			return archive.Identity{}, notWAL(path, "%v", err)
		}
	}
	return neighbour(filepath.Dir(path))
}
