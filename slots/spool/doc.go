// Package spool is a node's own log of WAL on disk: frames, by timeline and window, appended by one writer and read by any
// number of readers that follow it. Memory does not grow with the log or with a reader's backlog.
//
// # Files
//
//	<data>/lock                                 held while the log is open
//	<data>/flushed                              how far the newest window is durable (a hint, see marker.go)
//	<data>/identity                             whose WAL this is (package statefile)
//	<data>/history/<8 hex TLI>.history          timeline history files, verbatim
//	<data>/spool/<8 hex TLI>/<16 hex LSN>.win   one window: link.WindowHeader, then frames, then an index if it is sealed; LSN
//	                                            is the first byte held
//
// A window ends at the next multiple of its reset distance. The first frame of a file has a full header, so each file is read
// alone; a continuing frame's stream begins in the same file. The frame that ends a timeline is the last one of its last file.
// Windows of a log are contiguous: each begins where the one before ended, a timeline where its parent's end says.
//
// The newest window is live: frames are appended. An older one may be replaced by a sealed one with the same WAL, whose frames,
// and so whose streams, may be others. Whoever reads the live file then reads it to its end; the name stands for the sealed one.
//
// # Order of operations, and what a crash leaves
//
//   - A window file gets its header and first frame before it is listed, and a frame its payload, where that is large, in a write
//     of its own behind the header: a frame that is cut there is a torn tail like any other.
//   - Behind a small frame zeros are written, up to a bound, and the next frames overwrite them: the file keeps its length, and an
//     fsync has nothing but their pages to write. Readers never see them. A window that is complete gets the length of its
//     frames before the next one begins, and the newest one when the log is closed. Zeros from behind a good frame to the end of
//     the file are where no frame was written; a frame that was written but not synced may have become such zeros.
//   - A window is begun while older ones are not durable yet, so several of the newest windows of a log can be torn or missing.
//     Three things are durable before: what lies more than MaxUnsyncedBytes of WAL before it; the name of the first window of its
//     timeline, if it is a later one; all of the older timelines, if it is the first.
//   - Sync: fsync of every window that is not durable, side by side, then of its directory and of the directory above where a
//     name is new; then the positions in memory move. They move in order only.
//   - A frame that ends a timeline is written when the next timeline's history file is durable.
//   - Retain removes the oldest window first and syncs the directory before it removes the next, and Open syncs it too: what is left is
//     contiguous.
//   - A sealed window takes the place of a live one when a later window is durable, so that the newest window never is a sealed
//     one: temporary file, fsync, rename, fsync of the directory. Until then the name stands for either file, both whole.
//     Removal and replacement exclude each other, so a removed window does not come back.
//   - Identity and history files: temporary file, fsync, rename, fsync of the directory.
//
// Open reads the windows of the newest timeline that were perhaps not durable to their ends, the last one of each older timeline
// too, and the headers of the others. In those that were perhaps not durable, a last frame that is incomplete or damaged with
// nothing behind it, one in a sector that was never written, and a window that is missing before another one, were not confirmed
// by Sync: the log is cut off at the first of them, and the windows behind are removed, with lines in the log. Should the newest
// window be a sealed one after all, because later ones were taken away on purpose, it is made live again. Damage of another kind
// or anywhere else, or below what <data>/flushed says, is a *CorruptError. A failed fsync leaves the state of the disk unknown,
// so the log refuses everything after it: open it again. Since the system may count as written what that fsync lost, Open writes once
// more what is not known to have been durable, before it syncs it.
package spool
