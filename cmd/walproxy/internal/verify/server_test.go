package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// fakeServer answers as a server on timeline 2 does, as far as comparing needs it.
type fakeServer struct {
	whole    []byte
	keep     protocol.LSN // what lies below was removed
	skip     protocol.LSN // a message that begins there says that it begins a byte later
	breaks   protocol.LSN // there the server reports an error
	listener net.Listener
	running  sync.WaitGroup
}

func (f *fakeServer) start(t *testing.T) string {
	t.Helper()
	var err error
	f.listener, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f.running.Go(func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.running.Go(func() {
				defer conn.Close()
				_ = f.serve(conn) // the client's errors tell
			})
		}
	})
	t.Cleanup(func() {
		if err := f.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		f.running.Wait()
	})
	return fmt.Sprintf("host=127.0.0.1 port=%d user=u sslmode=disable", f.listener.Addr().(*net.TCPAddr).Port)
}

func (f *fakeServer) serve(conn net.Conn) error {
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return err
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for {
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if err := b.Flush(); err != nil {
			return err
		}
		message, err := b.Receive()
		if err != nil {
			return err
		}
		query, ok := message.(*pgproto3.Query)
		if !ok {
			return nil
		}
		var high, low uint32
		var tli protocol.Timeline
		switch {
		case query.String == "IDENTIFY_SYSTEM":
			row(b, systemID.String(), "2", end.String(), "")
		case query.String == "TIMELINE_HISTORY 2":
			row(b, protocol.HistoryName(2), historyOf2)
		default:
			if _, err := fmt.Sscanf(query.String, "START_REPLICATION PHYSICAL %X/%X TIMELINE %d", &high, &low, &tli); err != nil {
				return err
			}
			if err := f.stream(b, tli, protocol.LSN(high)<<32|protocol.LSN(low)); err != nil {
				return err
			}
		}
	}
}

func row(b *pgproto3.Backend, values ...string) {
	var fields []pgproto3.FieldDescription
	var columns [][]byte
	for _, v := range values {
		fields, columns = append(fields, pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: 25}), append(columns, []byte(v))
	}
	b.Send(&pgproto3.RowDescription{Fields: fields})
	b.Send(&pgproto3.DataRow{Values: columns})
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("OK")})
}

// stream sends WAL of a timeline from at on, as far as it goes, in pieces of odd sizes.
func (f *fakeServer) stream(b *pgproto3.Backend, tli protocol.Timeline, at protocol.LSN) error {
	if at < f.keep {
		b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: protocol.CodeUndefinedFile, Message: "requested WAL segment has already been removed"})
		return nil
	}
	b.Send(&pgproto3.CopyBothResponse{})
	b.Send(&pgproto3.CopyData{Data: protocol.Keepalive{WALEnd: at, SendTime: time.Now(), ReplyRequested: true}.Append(nil)})
	stop := end
	if tli == 1 {
		stop = fork
	}
	for at < stop {
		if f.breaks != 0 && at >= f.breaks {
			b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "terminating connection"})
			return errors.Join(b.Flush(), drain(b))
		}
		to := min(at+50_001, stop)
		start := at
		if f.skip != 0 && at <= f.skip && f.skip < to {
			start++
		}
		b.Send(&pgproto3.CopyData{Data: append(protocol.AppendXLogDataHeader(nil, start, end, time.Now()), f.whole[at-base:to-base]...)})
		if err := b.Flush(); err != nil {
			return err
		}
		at = to
	}
	return drain(b)
}

// drain reads until the client goes: unread messages would reset the connection, and what was sent might be lost.
func drain(b *pgproto3.Backend) error {
	for {
		if _, err := b.Receive(); err != nil {
			return err
		}
	}
}

// A server's WAL is read over both timelines, and compared with that of every other place.
func TestServer(t *testing.T) {
	whole := wholeWAL()
	server := (&fakeServer{whole: whole}).start(t)
	for _, p := range places {
		r, err := compare(t, server, p.make(t, whole))
		if err != nil || fmt.Sprint(r.Compared) != fmt.Sprint(all) || r.OnlyA != nil || r.OnlyB != nil {
			t.Errorf("a server and %s: %v, %+v", p.name, err, r)
		}
	}
	other := wholeWAL()
	at := fork + 300_000
	other[at-base] ^= 1
	r, err := compare(t, (&fakeServer{whole: other}).start(t), server)
	if !errors.Is(err, ErrDiffers) || r.Difference.LSN != at.String() || r.Difference.Timeline != 2 {
		t.Errorf("two servers that differ at %s: %v, %+v", at, err, r)
	}
}

// The oldest WAL that a server has is found to the mebibyte, on either timeline; what others have below it is theirs alone.
func TestServerThatRemovedWAL(t *testing.T) {
	whole := wholeWAL()
	full := archived(t, whole)
	for _, keep := range []protocol.LSN{base + 1<<20, base + 3<<20} {
		r, err := compare(t, full, (&fakeServer{whole: whole, keep: keep}).start(t))
		want := []Range{rangeOf(Span{1, keep, fork}), all[1]}
		if keep > fork {
			want = []Range{rangeOf(Span{2, keep, end})}
		}
		if err != nil || fmt.Sprint(r.Compared) != fmt.Sprint(want) || len(r.OnlyA) == 0 || r.OnlyB != nil {
			t.Errorf("removed below %s: %v, %+v", keep, err, r)
		}
	}
}

// A stream with a hole, one that ends, and a server that is not there are errors, never the same WAL.
func TestServerErrors(t *testing.T) {
	whole := wholeWAL()
	full := archived(t, whole)
	for what, f := range map[string]*fakeServer{"expected 0/": {whole: whole, skip: base + 400_000}, "terminating connection": {whole: whole, breaks: fork + 200_000}} {
		if r, err := compare(t, full, f.start(t)); err == nil || !strings.Contains(err.Error(), what) || errors.Is(err, ErrDiffers) {
			t.Errorf("%s: %v, %+v", what, err, r)
		}
	}
	gone := &fakeServer{whole: whole}
	conninfo := gone.start(t) + " password=secret"
	must(t, gone.listener.Close())
	_, err := Compare(context.Background(), open(t, full), open(t, conninfo), Options{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
}
