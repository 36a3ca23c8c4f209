// Package archive keeps the WAL of one cluster for the long term, in a Store: a directory or a bucket.
//
// WAL lies in immutable objects, each a few sealed windows with a header and an index in front; FORMAT.md beside this file
// describes every byte and name. An Archive is an opened store whose identity was checked; it takes objects and plain files.
// A Reader gives back the WAL of any range, of any timeline.
package archive
