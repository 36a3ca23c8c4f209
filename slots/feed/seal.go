package feed

import (
	"context"
	"fmt"
	"iter"

	"go.uber.org/zap"

	"walproxy/protocol/link"
	"walproxy/recompress"
)

// Seal puts windows of the spool that are complete into fewer bytes, until ctx ends: their frames, which were made one by one as
// WAL came in, are coded again as a whole. Consumers are not disturbed; while WAL flows in bulk it waits, for a minute at most.
func (f *Feed) Seal(ctx context.Context) error {
	sealer, err := recompress.NewSealer(f.opt.Recompress)
	if err != nil {
		return fmt.Errorf("seal windows: %w", err)
	}
	wait := patience{}
	return f.log.Seal(ctx, func(dst []byte, h link.WindowHeader, frames iter.Seq2[*link.Frame, error]) ([]byte, error) {
		wait.await(ctx, f.bulk.remaining)
		out, stats, err := sealer.Seal(dst, h, frames)
		if stats.Mismatches > 0 {
			f.zap.Error("the encoder made frames that do not decode; their WAL is carried as it is",
				zap.Stringer("lsn", h.Start), zap.Uint32("tli", uint32(h.Timeline)), zap.Uint64("frames", stats.Mismatches))
		}
		return out, err
	})
}
