// Package slots keeps what a node owes its consumers and reports to its upstream: physical replication slots, live consumers,
// how far back WAL must be kept for them, what the node acknowledges, and whose row versions the primary must keep.
package slots
