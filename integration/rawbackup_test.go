package integration

import (
	"archive/tar"
	"bytes"
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// replication is a replication connection on which messages are read one by one. Versions without client tools here are
// backed up by it.
type replication struct {
	t    *testing.T
	conn *pgconn.PgConn
	pg   *pgproto3.Frontend
}

func dialReplication(ctx context.Context, t *testing.T, conninfo string) *replication {
	t.Helper()
	conn, err := pgconn.Connect(ctx, conninfo+" replication=true sslmode=disable")
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &replication{t, conn, conn.Frontend()}
}

func (r *replication) query(text string) {
	r.t.Helper()
	r.pg.Send(&pgproto3.Query{String: text})
	must(r.t, r.pg.Flush())
}

func (r *replication) next() pgproto3.BackendMessage {
	r.t.Helper()
	m, err := r.pg.Receive()
	must(r.t, err)
	return m
}

// takenBackup is what the messages of a BASE_BACKUP said.
type takenBackup struct {
	shape     []string          // of the messages, those of a copy taken together
	archives  map[string][]byte // base.tar and one for each tablespace; in order of arrival without names up to 14
	manifest  []byte
	progress  int
	failure   *pgproto3.ErrorResponse
	startRow  []string
	finishRow []string
}

// backUp executes a BASE_BACKUP and reads its answer to ReadyForQuery.
func (r *replication) backUp(command string, major int) *takenBackup {
	r.t.Helper()
	r.query(command)
	b := &takenBackup{archives: map[string][]byte{}}
	name, copies, sets := "", 0, 0
	note := func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); len(b.shape) == 0 || b.shape[len(b.shape)-1] != line {
			b.shape = append(b.shape, line)
		}
	}
	for {
		switch m := r.next().(type) {
		case *pgproto3.RowDescription:
			sets++
			note("T %s", describe(m))
		case *pgproto3.DataRow:
			note("D %d", len(m.Values))
			row := make([]string, len(m.Values))
			for i, v := range m.Values {
				row[i] = string(v)
			}
			switch sets {
			case 1:
				b.startRow = row
			case 3:
				b.finishRow = row
			}
		case *pgproto3.CopyOutResponse:
			copies++
			name = fmt.Sprintf("copy %d", copies)
			note("H %d %v", m.OverallFormat, m.ColumnFormatCodes)
		case *pgproto3.CopyData:
			name = b.take(m.Data, name, major, note)
		case *pgproto3.CopyDone:
			note("c")
		case *pgproto3.CommandComplete:
			note("C %s", m.CommandTag)
		case *pgproto3.ErrorResponse:
			copied := *m
			b.failure = &copied
			note("E %s", m.Code)
		case *pgproto3.NoticeResponse:
			note("N %s", m.Code)
		case *pgproto3.ParameterStatus:
		case *pgproto3.ReadyForQuery:
			note("Z %c", m.TxStatus)
			return b
		default:
			r.t.Fatalf("message %T in a base backup", m)
		}
	}
}

func describe(m *pgproto3.RowDescription) string {
	var columns []string
	for _, f := range m.Fields {
		columns = append(columns, fmt.Sprintf("%s oid=%d len=%d mod=%d", f.Name, f.DataTypeOID, f.DataTypeSize, f.TypeModifier))
	}
	return strings.Join(columns, ", ")
}

// take files one CopyData and returns the name of the archive that goes on.
//
// Source: PostgreSQL src/backend/backup/basebackup_copy.c (15-18); replication/basebackup.c (13-14).
func (b *takenBackup) take(data []byte, name string, major int, note func(string, ...any)) string {
	if major < 15 {
		note("d")
		b.archives[name] = append(b.archives[name], data...)
		return name
	}
	note("d %c", data[0])
	switch body := data[1:]; data[0] {
	case 'n':
		archive, _, _ := bytes.Cut(body, []byte{0})
		return string(archive)
	case 'm':
		return ""
	case 'p':
		if len(body) == 8 && endian.BigEndian.Uint64(body) > 0 {
			b.progress++
		}
	case 'd':
		if name == "" {
			b.manifest = append(b.manifest, body...)
		} else {
			b.archives[name] = append(b.archives[name], body...)
		}
	}
	return name
}

// shapes leaves out what depends on how busy servers are.
func (b *takenBackup) shapes() []string {
	var steady []string
	for _, line := range b.shape {
		if line == "d p" {
			continue
		}
		if n := len(steady); n == 0 || steady[n-1] != line {
			steady = append(steady, line)
		}
	}
	return steady
}

// base returns the archive of the data directory.
func (b *takenBackup) base(major int) []byte {
	if major >= 15 {
		return b.archives["base.tar"]
	}
	// Without a manifest the data directory comes last, and without the blocks that end an archive.
	return append(slices.Clone(b.archives[fmt.Sprintf("copy %d", len(b.archives))]), make([]byte, 1024)...)
}

// unpack returns the files of an archive by name, and its directories by names that end in a slash.
func unpack(archive []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name := filepath.Clean("/" + h.Name)[1:]
		if h.Typeflag == tar.TypeDir {
			files[name+"/"] = nil
		} else if files[name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

// place writes unpacked files into a new directory.
func place(files map[string][]byte, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) { // a directory comes before what is in it
		path, err := filepath.Join(dir, name), error(nil)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, files[name], 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// upload sends a manifest in pieces, as pg_basebackup --incremental does, and returns the error of the server.
func (r *replication) upload(manifest []byte) *pgproto3.ErrorResponse {
	r.t.Helper()
	r.query("UPLOAD_MANIFEST")
	var failure *pgproto3.ErrorResponse
	for {
		switch m := r.next().(type) {
		case *pgproto3.CopyInResponse:
			for piece := range slices.Chunk(manifest, 65536) {
				r.pg.Send(&pgproto3.CopyData{Data: piece})
			}
			r.pg.Send(&pgproto3.CopyDone{})
			must(r.t, r.pg.Flush())
		case *pgproto3.ErrorResponse:
			copied := *m
			failure = &copied
		case *pgproto3.ReadyForQuery:
			return failure
		}
	}
}

// backupCommand spells BASE_BACKUP in the grammar of a version.
func backupCommand(major int, options ...string) string {
	if major < 15 {
		return "BASE_BACKUP " + strings.Join(options, " ")
	}
	for i, o := range options {
		options[i] = map[string]string{"FAST": "CHECKPOINT 'fast'", "NOWAIT": "WAIT false"}[o]
		if options[i] == "" {
			options[i] = o
		}
	}
	return "BASE_BACKUP (" + strings.Join(options, ", ") + ")"
}

// finish reads to ReadyForQuery or the end of the connection and returns the last error that came.
func (r *replication) finish() *pgproto3.ErrorResponse {
	var failure *pgproto3.ErrorResponse
	for {
		message, err := r.pg.Receive()
		if err != nil {
			return failure
		}
		switch m := message.(type) {
		case *pgproto3.ErrorResponse:
			copied := *m
			failure = &copied
		case *pgproto3.ReadyForQuery:
			return failure
		}
	}
}
