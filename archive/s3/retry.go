package s3

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"

	"walproxy/archive"
)

// The wait before another attempt is a random time up to a bound that doubles from the first to the last one.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 10 * time.Second
)

// retry calls attempt, which moves so many bytes, until it succeeds, fails for good, or Options.RetryFor is over. The error is
// that of the last attempt, in its class.
func (s *Store) retry(ctx context.Context, bytes int64, attempt func(context.Context) error) error {
	begun := time.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.once(ctx, bytes, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil { // the caller's own deadline
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = class(err)
		if !archive.Retryable(err) || time.Since(begun)+wait > s.options.RetryFor {
			return err
		}
		timer := time.NewTimer(rand.N(wait))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// once is one attempt with its own deadline.
func (s *Store) once(ctx context.Context, bytes int64, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.attemptTimeout(bytes))
	defer cancel()
	return attempt(ctx)
}

// class puts an error of a request into its class.
func class(err error) error {
	if err == nil || archive.Retryable(err) || errors.Is(err, archive.ErrExists) || errors.Is(err, archive.ErrNotExist) {
		return err
	}
	answer := minio.ToErrorResponse(err)
	switch {
	case answer.Code == minio.NoSuchKey:
		return fmt.Errorf("%w: %w", archive.ErrNotExist, err)
	case answer.StatusCode == http.StatusPreconditionFailed:
		return archive.ErrExists
	case passes(answer, err):
		return fmt.Errorf("%w: %w", archive.ErrUnavailable, err)
	}
	return err
}

// passes reports whether a failure may be over soon: no connection, no answer, a server that is busy or broken.
func passes(answer minio.ErrorResponse, err error) bool {
	switch answer.Code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "RequestTimeout", "Throttling", "ThrottlingException", "RequestThrottled",
		"RequestLimitExceeded", "ConditionalRequestConflict", "OperationAborted", "ExpiredToken", "ExpiredTokenException",
		"BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch":
		return true
	}
	switch answer.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0: // no answer at all, or none of an S3 server's
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || isCut(err)
	}
	return false
}

// failed makes an error of a request of err.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &archive.StoreError{Op: op, Name: name, Err: err}
}
