package integration

import (
	"context"
	"testing"

	"walproxy/integration/pgcluster"
)

// TestStockStandbySurvivesFaults is the measure for all fault tests: a stock standby straight behind its primary, through
// cut, stalled and half-open connections in random order, ends with the primary's rows and the primary's WAL.
func TestStockStandbySurvivesFaults(t *testing.T) {
	eachMajor(t, func(ctx context.Context, t *testing.T, major int) {
		choice := random(t)
		primary := startPrimary(ctx, t, pgcluster.Options{Major: major, Conf: []string{
			"wal_sender_timeout = 2s", "wal_receiver_timeout = 1s", "wal_retrieve_retry_interval = 100ms",
		}})
		standby := cloneOf(ctx, t, primary)
		proxy, conninfo := through(t, primary.Port)
		must(t, standby.MakeStandby(conninfo, ""))
		must(t, standby.Start(ctx))
		lsn := write(ctx, t, primary, 1)
		from := lsn.Floor(primary.Options.SegmentBytes())
		must(t, standby.WaitReplayed(ctx, lsn)) // it streams from here on
		for range rounds(4, 200) {
			switch choice.IntN(4) {
			case 0:
				proxy.Cut()
			case 1:
				proxy.HalfOpen()
			case 2:
				proxy.HalfOpenDown()
			case 3:
				proxy.StallAll(true)
			}
			lsn = write(ctx, t, primary, 1+choice.IntN(2000))
			proxy.StallAll(false)
			must(t, standby.WaitReplayed(ctx, lsn))
		}
		sameRows(ctx, t, primary, standby)
		sameWAL(t, 1, from, lsn, primary.WAL(), standby.WAL())
	})
}
