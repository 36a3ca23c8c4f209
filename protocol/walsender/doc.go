// Package walsender serves WAL to the stock consumers of PostgreSQL 13 to 18 (standbys, pg_receivewal, the streamer of
// pg_basebackup) and to downstream nodes: startup, authentication, replication commands, streaming.
//
// A client sees a PostgreSQL server of the upstream's major version: its settings, its result sets, its errors. What the
// WAL is and where slots live is behind Backend, Slots and Consumers.
package walsender
