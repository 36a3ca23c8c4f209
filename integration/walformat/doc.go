// Package walformat holds protocol/wal against real servers: what it reads out of their WAL must be what pg_waldump,
// pg_walinspect and pageinspect see. It has tests only.
package walformat
