package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"walproxy/protocol"
	"walproxy/protocol/walsender"
	"walproxy/slots/feed"
)

// metrics are those that belong to no package below.
type metrics struct {
	feed        *feed.Metrics
	link, plain sentCounters
	backups     prometheus.Counter // base backups relayed
	backupBytes prometheus.Counter // that came from the upstream for them
}

// sentCounters count what leaves the node on one kind of stream.
type sentCounters struct {
	bytes prometheus.Counter // on the wire, TCP's and TLS's own excepted
	wal   prometheus.Counter // WAL in it
}

func newMetrics(reg prometheus.Registerer) *metrics {
	factory := promauto.With(reg)
	counters := func(kind, what string) sentCounters {
		return sentCounters{
			bytes: factory.NewCounter(prometheus.CounterOpts{Name: "walproxy_" + kind + "_sent_bytes_total",
				Help: "Bytes sent " + what + ", messages and headers included, TCP's and TLS's excepted."}),
			wal: factory.NewCounter(prometheus.CounterOpts{Name: "walproxy_" + kind + "_sent_wal_bytes_total",
				Help: "WAL that these bytes carry. Rising slower than the primary writes means that consumers fall behind."}),
		}
	}
	return &metrics{
		feed:  feed.NewMetrics(reg),
		link:  counters("link", "to downstream nodes"),
		plain: counters("plain", "to stock consumers"),
		backups: factory.NewCounter(prometheus.CounterOpts{Name: "walproxy_base_backups_total",
			Help: "Connections to the upstream made for base backups of consumers and downstream nodes. A steep rise means that clients fail and try again."}),
		backupBytes: factory.NewCounter(prometheus.CounterOpts{Name: "walproxy_base_backup_received_bytes_total",
			Help: "Bytes that came from the upstream for base backups: compressed if it is a node. They share the network with the WAL."}),
	}
}

// copyDataBytes precede the body of a CopyData message: type and length.
const copyDataBytes = 5

// metered counts what an Outgoing sends.
type metered struct {
	walsender.Outgoing
	sent     protocol.LSN
	counters *sentCounters
}

func (m *metered) Next(ctx context.Context, dst []byte) ([]byte, protocol.LSN, error) {
	msg, sent, err := m.Outgoing.Next(ctx, dst)
	if err == nil {
		m.counters.bytes.Add(float64(len(msg) - len(dst) + copyDataBytes))
		if sent > m.sent {
			m.counters.wal.Add(float64(sent - m.sent))
			m.sent = sent
		}
	}
	return msg, sent, err
}
