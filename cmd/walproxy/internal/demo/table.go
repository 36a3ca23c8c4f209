package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"walproxy/protocol"
)

// Metrics of node A that the table shows.
const (
	metricRawBytes  = "walproxy_feed_wal_bytes_total"
	metricFrames    = "walproxy_feed_frames_total"
	metricLinkBytes = "walproxy_link_sent_bytes_total"
	metricLinkWAL   = "walproxy_link_sent_wal_bytes_total"
)

// sample is one line of the table.
type sample struct {
	raw, link, linkWAL, frames float64
	lagBytes                   int64
	lagMillis                  float64
}

const tableHead = "%8s %12s %12s %8s %12s %9s %9s"

// showTable prints a line each second until stop closes.
func (s *scene) showTable(ctx context.Context, stop <-chan struct{}) error {
	s.say(tableHead, "time", "WAL", "link", "ratio", "lag bytes", "lag ms", "frames")
	first, err := s.sample(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return s.row(ctx, started, first)
		case <-tick.C:
			if err := s.row(ctx, started, first); err != nil {
				return err
			}
		}
	}
}

func (s *scene) row(ctx context.Context, started time.Time, first sample) error {
	now, err := s.sample(ctx)
	if err != nil {
		return err
	}
	link, wal := now.link-first.link, now.linkWAL-first.linkWAL
	ratio := "-"
	if link > 0 {
		ratio = fmt.Sprintf("%.2fx", wal/link)
	}
	s.say(tableHead, fmt.Sprintf("%.0f s", time.Since(started).Seconds()), size(now.raw-first.raw), size(link), ratio,
		strconv.FormatInt(now.lagBytes, 10), fmt.Sprintf("%.1f", now.lagMillis), fmt.Sprintf("%.0f", now.frames-first.frames))
	return nil
}

// sample asks node A for its counters and both servers for their positions.
func (s *scene) sample(ctx context.Context) (sample, error) {
	m, err := s.a.Metrics()
	if err != nil {
		return sample{}, err
	}
	out := sample{raw: m[metricRawBytes], link: m[metricLinkBytes], linkWAL: m[metricLinkWAL], frames: m[metricFrames]}
	primary, err := s.primary.FlushLSN(ctx)
	if err != nil {
		return sample{}, err
	}
	// Lag in time, while there is some: how old the newest commit is that the standby shows. Both servers read the same
	// clock here.
	rows, err := s.standby.Query(ctx, `select pg_last_wal_receive_lsn(),
		extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()) * 1000`)
	if err != nil {
		return sample{}, err
	}
	standby, err := protocol.ParseLSN(rows[0][0])
	if err != nil {
		return sample{}, err
	}
	out.lagBytes = max(0, int64(primary)-int64(standby))
	if rows[0][1] != "" && out.lagBytes > 0 {
		if out.lagMillis, err = strconv.ParseFloat(rows[0][1], 64); err != nil {
			return sample{}, err
		}
	}
	return out, nil
}

// size prints bytes for people.
func size(bytes float64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.2f GiB", bytes/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.2f MiB", bytes/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", bytes/(1<<10))
	}
	return fmt.Sprintf("%.0f B", bytes)
}
