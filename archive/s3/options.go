package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"walproxy/archive"
)

// Options of a store. Where the environment is named, it stands for what is empty.
type Options struct {
	Endpoint  string // https://host[:port], or http://; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; empty: Amazon's
	Region    string // AWS_REGION, AWS_DEFAULT_REGION; empty: asked for at Amazon, us-east-1 elsewhere
	PathStyle bool   // the bucket is part of the path, not of the host's name; always so for hosts that are addresses
	// Conditional lets the server decide whether a name is taken. Without it, which is for servers that cannot, two writers that
	// put one name within the same moment may both succeed.
	Conditional bool
	Timeout     time.Duration // without any byte, or for a request without a body; 0: DefaultTimeout
	RetryFor    time.Duration // how long what may pass is tried again; 0: DefaultRetryFor
}

// Defaults of Options.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultRetryFor = time.Minute
)

// New returns the store in a bucket, below a prefix. It asks nobody; the first request shows whether the place exists and
// whether access is granted.
//
// Credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from the profile AWS_PROFILE of
// AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, else from the machine (web identity, container or instance role).
func New(bucket, prefix string, o Options) (*Store, error) {
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return nil, fmt.Errorf("bucket %q: %w", bucket, err)
	}
	prefix = strings.Trim(prefix, "/")
	if prefix != "" {
		if !archive.ValidName(prefix) {
			return nil, fmt.Errorf("prefix %q: want letters, digits, '.', '-', '_' and slashes", prefix)
		}
		prefix += "/"
	}
	o.Timeout, o.RetryFor = or(o.Timeout, DefaultTimeout), or(o.RetryFor, DefaultRetryFor)
	host, secure, err := endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	transport := newTransport(o.Timeout)
	options := minio.Options{
		Secure: secure, Transport: transport, Region: region(o.Region, host), MaxRetries: 1,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{},
			&credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 5 * time.Second}},
		}),
	}
	if o.PathStyle {
		options.BucketLookup = minio.BucketLookupPath
	}
	client, err := minio.NewCore(host, &options)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", o.Endpoint, err)
	}
	return &Store{client: client, transport: transport, options: o, bucket: bucket, prefix: prefix}, nil
}

func or(d, standard time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return standard
}

// amazon is where Amazon's servers are.
const amazon = "s3.amazonaws.com"

// endpoint returns the host, with the port, and whether to use TLS.
func endpoint(text string) (host string, secure bool, err error) {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if text == "" {
			text = os.Getenv(name)
		}
	}
	if text == "" {
		return amazon, true, nil
	}
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return "", false, errors.New("endpoint: want https://host[:port] or http://host[:port]")
	}
	return u.Host, u.Scheme == "https", nil
}

func region(text, host string) string {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if text == "" {
			text = os.Getenv(name)
		}
	}
	if text == "" && host != amazon {
		text = "us-east-1" // spares a request; other servers hardly care
	}
	return text
}

// newTransport returns a transport whose connections end when no byte moves for so long.
func newTransport(idle time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: min(idle, 10*time.Second), KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &movingConn{Conn: conn, idle: idle}, nil
		},
		TLSHandshakeTimeout: min(idle, 10*time.Second), ExpectContinueTimeout: time.Second,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: idle / 2, DisableCompression: true, ForceAttemptHTTP2: false,
	}
}

// movingConn is a connection on which reading and writing both end when neither has moved a byte for the time idle.
type movingConn struct {
	net.Conn
	idle time.Duration
}

func (c *movingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.moved(n, err)
}

func (c *movingConn) Write(p []byte) (int, error) {
	if err := c.moved(1, nil); err != nil { // a connection that lay idle begins anew
		return 0, err
	}
	n, err := c.Conn.Write(p)
	return n, c.moved(n, err)
}

func (c *movingConn) moved(n int, err error) error {
	if n > 0 && err == nil {
		err = c.SetDeadline(time.Now().Add(c.idle))
	}
	return err
}

// isCut reports whether a connection ended in the middle of an answer.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}
