// Package spool is a node's own log of WAL on disk: frames, by timeline and window, appended by one writer and read by any
// number of readers that follow it. Memory does not grow with the log or with a reader's backlog.
//
// # Files
//
//	<data>/lock                                 held while the log is open
//	<data>/flushed                              how far the newest window is durable (a hint, see marker.go)
//	<data>/identity                             whose WAL this is (package statefile)
//	<data>/history/<8 hex TLI>.history          timeline history files, verbatim
//	<data>/spool/<8 hex TLI>/<16 hex LSN>.win   one window: link.WindowHeader, then frames; LSN is the first byte held
//
// A window ends at the next multiple of its reset distance. The first frame of a file has a full header, so each file is read
// alone; a continuing frame's stream begins in the same file. The frame that ends a timeline is the last one of its last file.
// Windows of a log are contiguous: each begins where the one before ended, a timeline where its parent's end says.
//
// # Order of operations, and what a crash leaves
//
//   - A window file gets its header and first frame in one write. It is made only when the window before it is durable, so
//     only the newest window of a log can be torn. Its name becomes durable with the first Sync after that.
//   - Sync: fsync of the newest window, then of its directory and of the directory above where a name is new.
//   - A frame that ends a timeline is written when the next timeline's history file is durable.
//   - Retain removes the oldest window first and syncs the directory before it removes the next: what is left is contiguous.
//   - Identity and history files: temporary file, fsync, rename, fsync of the directory.
//
// Open reads the newest window of each timeline to its end and the headers of the others. In the newest window of all, a last
// frame that is incomplete or damaged with nothing behind it, or one in a sector that was never written, was not confirmed by
// Sync: the file is cut off before it, with a line in the log. Damage anywhere else, or below what <data>/flushed says, is a
// *CorruptError. A failed fsync leaves the state of the disk unknown, so the log refuses everything after it: open it again.
package spool
