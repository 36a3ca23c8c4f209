package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"walproxy/protocol"
)

// replyWithin bounds the wait for each message of a server.
const replyWithin = time.Minute

// probeBytes is how exactly the oldest WAL that a server has is looked for: nodes keep WAL from such boundaries on.
const probeBytes = 1 << 20

// server is a PostgreSQL server or a node, read by streaming without a slot and never beyond the position that it has told. What
// it might remove meanwhile it removes: then reading fails.
type server struct {
	name    string
	config  *pgconn.Config
	conn    *pgconn.PgConn // idle; nil if there is none
	end     protocol.LSN
	history protocol.History // of the timeline that the server is on
}

// NewServer returns the server that conninfo leads to; name is shown. Nothing is connected yet.
func NewServer(conninfo, name string) (Source, error) {
	config, err := pgconn.ParseConfig(conninfo)
	if err != nil {
		return nil, errors.New("the conninfo is not a libpq connection string or URI, or names a file that cannot be read")
	}
	config.RuntimeParams["replication"] = "true"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "walproxy verify"
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = replyWithin
	}
	return &server{name: name, config: config}, nil
}

func (s *server) Name() string { return s.name }

// Close ends the connection.
func (s *server) Close() error {
	if s.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn := s.conn
	s.conn = nil
	return conn.Close(ctx)
}

func (s *server) connect(ctx context.Context) (err error) {
	if s.conn == nil {
		s.conn, err = pgconn.ConnectConfig(ctx, s.config)
	}
	return err
}

// row executes a command that answers with one row of so many columns or more.
func (s *server) row(ctx context.Context, command string, columns int) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	results, err := s.conn.Exec(ctx, command).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("execute %q: %w", command, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < columns {
		return nil, fmt.Errorf("execute %q: want one row of %d columns or more", command, columns)
	}
	return results[0].Rows[0], nil
}

func (s *server) Inventory(ctx context.Context) (Inventory, error) {
	if err := s.connect(ctx); err != nil {
		return Inventory{}, err
	}
	row, err := s.row(ctx, "IDENTIFY_SYSTEM", 3)
	if err != nil {
		return Inventory{}, err
	}
	id, err := strconv.ParseUint(string(row[0]), 10, 64)
	if err != nil {
		return Inventory{}, fmt.Errorf("parse system identifier: %w", err)
	}
	tli, err := protocol.ParseTimeline(string(row[1]))
	if err != nil {
		return Inventory{}, err
	}
	if s.end, err = protocol.ParseLSN(string(row[2])); err != nil {
		return Inventory{}, err
	}
	v := Inventory{SystemID: protocol.SystemID(id)}
	s.history = protocol.History{Timeline: tli}
	if tli > 1 {
		if row, err = s.row(ctx, fmt.Sprintf("TIMELINE_HISTORY %d", tli), 2); err != nil {
			return Inventory{}, err
		}
		if s.history, err = protocol.ParseHistory(tli, row[1]); err != nil {
			return Inventory{}, err
		}
		v.Histories = []protocol.History{s.history}
	}
	v.Spans, err = s.spans(ctx)
	return v, err
}

// spans finds out what the server holds of each timeline, the newest first: what it holds of one is all of it, or it holds
// nothing of those before.
func (s *server) spans(ctx context.Context) ([]Span, error) {
	var spans []Span
	h := s.history
	for i := len(h.Entries); i >= 0; i-- {
		span := Span{Timeline: h.Timeline, End: s.end, Begin: probeBytes}
		if i < len(h.Entries) {
			span.Timeline, span.End = h.Entries[i].Timeline, h.Entries[i].End
		}
		if i > 0 {
			span.Begin = h.Entries[i-1].End
		}
		whole := span.Begin
		var err error
		if span.Begin, err = s.oldest(ctx, span); err != nil {
			return nil, err
		}
		spans = append(spans, span)
		if span.Begin > whole {
			break
		}
	}
	return normal(spans), nil
}

// oldest returns where the WAL of span begins that the server can send: removed is always what is older than something else.
func (s *server) oldest(ctx context.Context, span Span) (protocol.LSN, error) {
	if span.End <= span.Begin {
		return span.Begin, nil
	}
	if held, err := s.holds(ctx, span.Timeline, span.Begin, span.End); held || err != nil {
		return span.Begin, err
	}
	low, high := span.Begin, span.End // low is gone; all from high on is held
	for {
		middle := (low + (high-low)/2).Floor(probeBytes)
		if middle <= low {
			middle = low.Next(probeBytes)
		}
		if middle >= high {
			return high, nil
		}
		held, err := s.holds(ctx, span.Timeline, middle, span.End)
		switch {
		case err != nil:
			return 0, err
		case held:
			high = middle
		default:
			low = middle
		}
	}
}

// holds asks for WAL at lsn, which lies below end, and reports whether some comes.
func (s *server) holds(ctx context.Context, tli protocol.Timeline, lsn, end protocol.LSN) (bool, error) {
	r, err := s.start(ctx, tli, lsn, end)
	if err == nil {
		_, err = r.Next(ctx)
		err = errors.Join(err, r.Close())
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == protocol.CodeUndefinedFile {
		return false, nil
	}
	return err == nil, err
}

func (s *server) Open(ctx context.Context, tli protocol.Timeline, from, to protocol.LSN) (Reader, error) {
	return s.start(ctx, tli, from, to)
}

// start asks for WAL. The reader's Close gives the connection up.
func (s *server) start(ctx context.Context, tli protocol.Timeline, from, to protocol.LSN) (*stream, error) {
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	r := &stream{conn: s.conn, next: from, end: to}
	s.conn = nil
	r.conn.Frontend().Send(&pgproto3.Query{String: fmt.Sprintf("START_REPLICATION PHYSICAL %s TIMELINE %d", from, tli)})
	err := r.conn.Frontend().Flush()
	for err == nil {
		var message pgproto3.BackendMessage
		if message, err = r.receive(ctx); err != nil {
			break
		}
		switch message := message.(type) {
		case *pgproto3.CopyBothResponse:
			return r, nil
		case *pgproto3.NoticeResponse, *pgproto3.ParameterStatus:
		default:
			err = fmt.Errorf("unexpected %T in answer to START_REPLICATION", message)
		}
	}
	return nil, errors.Join(err, r.Close())
}

// stream reads what START_REPLICATION sends.
type stream struct {
	conn      *pgconn.PgConn
	next, end protocol.LSN
}

// receive returns the next message; an error of the server as *pgconn.PgError.
func (r *stream) receive(ctx context.Context) (pgproto3.BackendMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	message, err := r.conn.ReceiveMessage(ctx)
	if err != nil {
		return nil, err
	}
	if refused, ok := message.(*pgproto3.ErrorResponse); ok {
		return nil, pgconn.ErrorResponseToPgError(refused)
	}
	return message, nil
}

func (r *stream) Next(ctx context.Context) ([]byte, error) {
	for r.next < r.end {
		message, err := r.receive(ctx)
		if err != nil {
			return nil, err
		}
		switch message := message.(type) {
		case *pgproto3.CopyData:
			wal, err := r.data(message.Data)
			if err != nil || len(wal) > 0 {
				return wal, err
			}
		case *pgproto3.NoticeResponse, *pgproto3.ParameterStatus:
		case *pgproto3.CopyDone:
			return nil, fmt.Errorf("the stream ends at %s already", r.next)
		default:
			return nil, fmt.Errorf("unexpected %T in a stream", message)
		}
	}
	return nil, io.EOF
}

// data takes a message of the stream, and returns the WAL in it.
func (r *stream) data(body []byte) ([]byte, error) {
	if len(body) > 0 && body[0] == protocol.MessageKeepalive {
		k, err := protocol.ParseKeepalive(body)
		if err == nil && k.ReplyRequested {
			r.conn.Frontend().Send(&pgproto3.CopyData{Data: protocol.Status{SendTime: time.Now()}.Append(nil)})
			err = r.conn.Frontend().Flush()
		}
		return nil, err
	}
	message, err := protocol.ParseXLogData(body)
	if err != nil {
		return nil, err
	}
	if message.Start != r.next {
		return nil, fmt.Errorf("WAL at %s came, expected %s", message.Start, r.next)
	}
	wal := message.Data[:min(uint64(len(message.Data)), uint64(r.end-r.next))]
	r.next += protocol.LSN(len(wal))
	return wal, nil
}

// Close drops the connection: the server need not send what is on its way.
func (r *stream) Close() error {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.conn.Close(gone) // the farewell is not waited for
	return nil
}
