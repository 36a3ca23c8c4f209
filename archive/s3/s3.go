// Package s3 is an archive's store in a bucket of an S3 server.
//
// An object is put in one request that fails if the name is taken (If-None-Match), with its CRC-32C, so it is there as a whole
// or not at all, and the first one stays. Every request has a deadline, a connection that moves no byte is given up, and what
// may pass is tried again after a growing, random wait.
package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"walproxy/archive"
)

// pageKeys is how many names one request of a listing returns.
const pageKeys = 1000

// Store is a prefix of a bucket. Safe for concurrent use.
type Store struct {
	client    *minio.Core
	transport *http.Transport
	options   Options
	bucket    string
	prefix    string // of every key: empty, or with a slash at its end
}

var _ archive.Store = (*Store)(nil)

// String implements archive.Store.
func (s *Store) String() string { return "s3://" + s.bucket + "/" + strings.TrimSuffix(s.prefix, "/") }

// Close implements archive.Store.
func (s *Store) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// key returns the object's key in the bucket.
func (s *Store) key(name string) (string, error) {
	if !archive.ValidName(name) {
		return "", fmt.Errorf("%q cannot be the name of an object", name)
	}
	return s.prefix + name, nil
}

// Put implements archive.Store.
func (s *Store) Put(ctx context.Context, name string, body io.ReaderAt, size int64) error {
	key, err := s.key(name)
	if err != nil {
		return failed("put", name, err)
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(sum, io.NewSectionReader(body, 0, size)); err != nil {
		return failed("put", name, fmt.Errorf("read what is to be stored: %w", err))
	}
	put := minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true,
		UserMetadata: map[string]string{"X-Amz-Checksum-Crc32c": base64.StdEncoding.EncodeToString(sum.Sum(nil))},
	}
	if s.options.Conditional {
		put.SetMatchETagExcept("*")
	}
	err = s.retry(ctx, size, func(ctx context.Context) error {
		if !s.options.Conditional {
			if _, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{}); !errors.Is(class(err), archive.ErrNotExist) {
				return errors.Join(err, onlyIf(err == nil, archive.ErrExists))
			}
		}
		_, err := s.client.Client.PutObject(ctx, s.bucket, key, io.NewSectionReader(body, 0, size), size, put)
		return err
	})
	return failed("put", name, err)
}

// onlyIf returns err if it holds.
func onlyIf(holds bool, err error) error {
	if holds {
		return err
	}
	return nil
}

// Get implements archive.Store.
func (s *Store) Get(ctx context.Context, dst []byte, name string, offset, length int64) ([]byte, error) {
	key, err := s.key(name)
	if err == nil && offset < 0 {
		err = fmt.Errorf("offset %d", offset)
	}
	if err != nil {
		return dst, failed("get", name, err)
	}
	var out []byte
	err = s.retry(ctx, length, func(ctx context.Context) (err error) {
		out, err = s.get(ctx, dst, key, offset, length)
		return err
	})
	if err != nil {
		return dst, failed("get", name, err)
	}
	return out, nil
}

func (s *Store) get(ctx context.Context, dst []byte, key string, offset, length int64) (out []byte, err error) {
	if length <= 0 {
		_, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
		return dst, err
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+length-1); err != nil {
		return dst, err
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, key, o)
	if err != nil {
		if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable { // at the object's end, or behind it
			return dst, nil
		}
		return dst, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if info.Size > length {
		return dst, fmt.Errorf("the server sent %d bytes where %d were asked for", info.Size, length)
	}
	from := len(dst)
	dst = append(dst, make([]byte, max(info.Size, 0))...)
	if _, err := io.ReadFull(body, dst[from:]); err != nil {
		return dst[:from], fmt.Errorf("%w: the answer ends early: %w", archive.ErrUnavailable, err)
	}
	return dst, nil
}

// Delete implements archive.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	key, err := s.key(name)
	if err == nil {
		err = s.retry(ctx, 0, func(ctx context.Context) error {
			return s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
		})
	}
	if errors.Is(class(err), archive.ErrNotExist) {
		return nil
	}
	return failed("delete", name, err)
}

// attemptTimeout returns how long one request that moves so many bytes may take.
func (s *Store) attemptTimeout(bytes int64) time.Duration {
	return s.options.Timeout + time.Duration(max(bytes, 0)/slowest)*time.Second
}

// slowest is the throughput, in bytes per second, that a request may have at least.
const slowest = 64 << 10
