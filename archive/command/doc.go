// Package command is what PostgreSQL's archive_command and restore_command do: Push takes a file of a server's pg_wal into an
// archive, and Get hands one out again.
package command
