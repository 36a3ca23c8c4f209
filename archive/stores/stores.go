// Package stores opens the store that an address names: file:///dir or s3://bucket/prefix.
package stores

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"walproxy/archive"
	"walproxy/archive/encrypted"
	"walproxy/archive/file"
	"walproxy/archive/s3"
)

// Options hold for every kind of store that has a use for them.
type Options struct {
	Timeout  time.Duration // of a request, or without any byte; 0: the store's default
	RetryFor time.Duration // how long what may pass is tried again; 0: the store's default
}

// Open returns the store at an address; it asks nobody yet. The caller closes it.
//
//	file:///var/lib/archive
//	s3://bucket/prefix?endpoint=https://host:port&region=NAME&path_style=on&conditional=off
//
// With key_file=/path among what follows the ?, objects are encrypted: see package encrypted.
//
// What the address of a bucket leaves out comes from the usual AWS_* variables; see s3.Options.
func Open(address string, o Options) (archive.Store, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("store: want file:///dir or s3://bucket/prefix") // err would show a password
	}
	if u.User != nil {
		return nil, errors.New("store: an address has no credentials; see AWS_ACCESS_KEY_ID and the files of AWS")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || u.Fragment != "" {
		return nil, fmt.Errorf("store %s: want key=value behind the ?", u.Redacted())
	}
	if keys, given := query["key_file"]; given {
		query.Del("key_file")
		u.RawQuery = query.Encode()
		inner, err := Open(u.String(), o)
		if err != nil {
			return nil, err
		}
		if len(keys) != 1 {
			return nil, errors.New("store: want one key_file")
		}
		return encrypted.New(inner, keys[0])
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !path.IsAbs(u.Path) || len(query) > 0 {
			return nil, fmt.Errorf("store %s: want file:///dir", address)
		}
		return file.New(u.Path), nil
	case "s3":
		return openS3(u, query, o)
	}
	return nil, fmt.Errorf("store %q: want file:///dir or s3://bucket/prefix", address)
}

func openS3(u *url.URL, query url.Values, o Options) (archive.Store, error) {
	options := s3.Options{
		Endpoint: query.Get("endpoint"), Region: query.Get("region"), Conditional: true, Timeout: o.Timeout, RetryFor: o.RetryFor,
	}
	for key, values := range query {
		if len(values) != 1 || !slices.Contains([]string{"endpoint", "region", "path_style", "conditional"}, key) {
			return nil, fmt.Errorf("store s3://%s: unknown or repeated key %q", u.Host, key)
		}
	}
	for key, into := range map[string]*bool{"path_style": &options.PathStyle, "conditional": &options.Conditional} {
		switch value := query.Get(key); value {
		case "":
		case "on", "off":
			*into = value == "on"
		default:
			return nil, fmt.Errorf("store s3://%s: %s is on or off", u.Host, key)
		}
	}
	s, err := s3.New(u.Host, strings.Trim(u.Path, "/"), options)
	if err != nil {
		return nil, fmt.Errorf("store s3://%s: %w", u.Host, err)
	}
	return s, nil
}
