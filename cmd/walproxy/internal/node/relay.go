package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"walproxy/protocol"
	"walproxy/protocol/walreceiver"
	"walproxy/protocol/walsender"
)

// relayer reaches the upstream for what the node does not have: base backups, SQL. It implements walsender.Relay.
type relayer struct{ node *Node }

// Backup connects to the upstream by the rules of the receiver, beside it, and to this node's cluster only.
func (r *relayer) Backup(ctx context.Context) (walsender.Upstream, error) {
	n := r.node
	if !n.config.Listen.BaseBackup {
		err := protocol.Errorf(protocol.CodeFeatureNotSupported, "base backups are switched off at this node")
		err.Hint = "Set listen.base_backup, or take the backup from the primary."
		return nil, err
	}
	id, _ := n.log.Identity()
	name := n.config.Upstream.ApplicationName + " base backup"
	conn, err := n.receiver.Dial(ctx, &sink{Feed: n.feed, node: n}, id.SystemID, name)
	if err != nil {
		return nil, err
	}
	n.metrics.backups.Inc()
	return &counted{conn, n.metrics.backupBytes}, nil
}

// counted counts what an upstream sends.
type counted struct {
	*walreceiver.Connection
	bytes prometheus.Counter
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Connection.Read(p)
	c.bytes.Add(float64(n))
	return n, err
}

// backupSlot begins the names of the temporary slots of base backups.
const backupSlot = "walproxy_base_backup_"

// Reserve makes a temporary slot at start, and waits for WAL.
func (r *relayer) Reserve(ctx context.Context, pid int32, tli protocol.Timeline, start protocol.LSN) error {
	n := r.node
	name := fmt.Sprintf("%s%d", backupSlot, pid)
	if err := n.store.Drop(name, pid); err != nil && !errors.Is(err, protocol.ErrSlotMissing) {
		return err
	}
	if err := n.store.Create(name, true, start, pid); err != nil {
		return err
	}
	return n.awaitWAL(ctx, tli, start)
}

// awaitWAL waits until the node holds WAL up to lsn on tli, as long as WAL comes in at least as often as an upstream may be silent.
func (n *Node) awaitWAL(ctx context.Context, tli protocol.Timeline, lsn protocol.LSN) error {
	timeout := n.config.Upstream.ReceiverTimeout
	silence := time.NewTimer(timeout)
	defer silence.Stop()
	var last protocol.LSN
	for {
		changed := n.log.Changed()
		current, end := n.feed.Position()
		if current > tli || current == tli && end >= lsn {
			return nil
		}
		if end != last {
			last = end
			silence.Reset(timeout)
		}
		select {
		case <-changed:
		case <-silence.C:
			return fmt.Errorf("wait for WAL up to %s on timeline %d: the node is at %s on timeline %d, and nothing came for %s", lsn, tli, end, current, timeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SQL connects as the configuration says for the user. What a server says in refusing reaches the client, but for the reasons
// why the node's own login failed.
func (r *relayer) SQL(ctx context.Context, want walsender.SQLSession) (walsender.Upstream, error) {
	for _, u := range r.node.config.Listen.SQLUsers {
		if u.Name != want.User {
			continue
		}
		session := walreceiver.Session{
			Conninfo: string(u.Conninfo), Database: want.Database, Parameters: want.Parameters, Timeout: r.node.config.Upstream.ReceiverTimeout,
		}
		conn, err := session.Dial(ctx)
		var server *pgconn.PgError
		if errors.As(err, &server) && !strings.HasPrefix(server.Code, "28") {
			refusal := protocol.Fatalf(server.Code, "%s", server.Message)
			refusal.Detail, refusal.Hint = server.Detail, server.Hint
			return nil, refusal
		}
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	err := protocol.Fatalf(protocol.CodeInvalidAuthorization, "SQL of user \"%s\" is not relayed by this node", want.User)
	err.Hint = "Add the user to listen.sql_users, or connect to the primary."
	return nil, err
}
