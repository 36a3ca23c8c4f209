package s3

import (
	"context"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"walproxy/archive"
)

// List implements archive.Store: a request for each pageKeys names.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[archive.Info, error] {
	return func(yield func(archive.Info, error) bool) {
		for {
			var page []archive.Info
			var more bool
			err := s.retry(ctx, 0, func(ctx context.Context) (err error) {
				page, more, err = s.page(ctx, page[:0], prefix, after)
				return err
			})
			if err != nil {
				yield(archive.Info{}, failed("list", prefix, err))
				return
			}
			for _, info := range page {
				after = info.Name
				if archive.ValidName(info.Name) && !yield(info, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// page appends the objects behind after, of one request.
func (s *Store) page(ctx context.Context, dst []archive.Info, prefix, after string) (page []archive.Info, more bool, err error) {
	ctx, cancel := context.WithCancel(ctx) // ends the library's work on the next page
	defer cancel()
	o := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: pageKeys}
	if after != "" {
		o.StartAfter = s.prefix + after
	}
	for info := range s.client.ListObjectsIter(ctx, s.bucket, o) {
		if info.Err != nil {
			return dst, false, info.Err
		}
		name := strings.TrimPrefix(info.Key, s.prefix)
		if name <= after { // a server that does not know start-after
			continue
		}
		dst = append(dst, archive.Info{Name: name, Bytes: info.Size, Modified: info.LastModified})
		if len(dst) == pageKeys {
			return dst, true, nil
		}
	}
	return dst, false, ctx.Err()
}
