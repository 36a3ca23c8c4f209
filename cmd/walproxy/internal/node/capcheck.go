package node

import (
	"fmt"

	"walproxy/cmd/walproxy/internal/config"
	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/slots/feed"
)

// checkCap refuses a spool.cap below which a full spool would never get room again: the segment and the window that a consumer
// is in are kept whole, and as much must fit in front of them.
//
// Errors: *config.Error.
func (n *Node) checkCap(segment, distance uint32) error {
	spoolCap := n.config.Spool.Cap
	least := 2 * (config.Bytes(segment) + config.Bytes(distance))
	if spoolCap == 0 || spoolCap >= least || segment == 0 {
		return nil
	}
	return &config.Error{Problems: []config.Problem{{Key: "spool.cap", What: fmt.Sprintf(
		"%s: must be at least %s, twice the upstream's wal_segment_size, %s, and the reset distance, %s, together; or 0 for none",
		spoolCap, least, config.Bytes(segment), config.Bytes(distance))}}}
}

// frames is where the link puts frames. It implements ship.FrameSink.
type frames struct {
	*feed.Feed
	node *Node
}

// Accept refuses windows that spool.cap is too small for.
func (f frames) Accept(hello link.ServerHello) error {
	id, _ := f.node.log.Identity()
	if err := f.node.checkCap(id.SegmentSize, hello.ResetDistance); err != nil {
		return err
	}
	return f.Feed.Accept(hello)
}

// Identify takes the upstream for ours, or refuses it.
func (s *sink) Identify(id protocol.Identity) error {
	if err := s.node.checkCap(id.SegmentSize, s.node.log.ResetDistance()); err != nil {
		return err
	}
	return s.node.log.SetIdentity(id)
}
