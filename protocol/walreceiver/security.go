package walreceiver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"walproxy/protocol/revocation"
)

// tlsSettings are parameters of libpq's encryption that pgconn does not know.
type tlsSettings struct{ crl, crlDir, min, max string }

// tlsVersions are as libpq spells them.
var tlsVersions = map[string]uint16{
	"TLSv1": tls.VersionTLS10, "TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13,
}

// setTLS adds the settings to those that pgconn made of the conninfo.
//
// Source: PostgreSQL src/interfaces/libpq/fe-secure-openssl.c, initialize_SSL (13-18).
func (s *session) setTLS(o tlsSettings) error {
	lists, err := o.lists()
	if err != nil {
		return err
	}
	lowest, highest := uint16(0), uint16(0)
	for _, bound := range []struct {
		name, text string
		version    *uint16
	}{{"ssl_min_protocol_version", o.min, &lowest}, {"ssl_max_protocol_version", o.max, &highest}} {
		known, ok := tlsVersions[bound.text]
		if bound.text != "" && !ok {
			return fmt.Errorf("%s=%q: want TLSv1, TLSv1.1, TLSv1.2 or TLSv1.3", bound.name, bound.text)
		}
		*bound.version = known
	}
	if highest != 0 && lowest > highest {
		return errors.New("ssl_min_protocol_version is above ssl_max_protocol_version")
	}
	for _, config := range s.tlsConfigs() {
		config.MinVersion, config.MaxVersion = lowest, highest
		if lists != nil && config.RootCAs != nil {
			config.VerifyConnection = func(state tls.ConnectionState) error { return checkRevoked(lists, config, state) }
		}
	}
	return nil
}

// lists reads the revocation lists; nil if there are none. Unlike libpq it does not overlook a file that is named and missing.
func (o tlsSettings) lists() (lists *revocation.Lists, err error) {
	if o.crl == "" && o.crlDir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil
		}
		standard := filepath.Join(home, ".postgresql", "root.crl")
		if _, err := os.Stat(standard); err != nil {
			return nil, nil
		}
		o.crl = standard
	}
	if o.crl != "" {
		if lists, err = revocation.Load(o.crl); err != nil {
			return nil, err
		}
	}
	if o.crlDir != "" {
		more, err := revocation.LoadDir(o.crlDir)
		if err != nil {
			return nil, err
		}
		lists = lists.Add(more)
	}
	return lists, nil
}

// tlsConfigs returns those of all hosts, each once.
func (s *session) tlsConfigs() (all []*tls.Config) {
	add := func(c *tls.Config) {
		if c != nil && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	add(s.config.TLSConfig)
	for _, f := range s.config.Fallbacks {
		add(f.TLSConfig)
	}
	return all
}

// checkRevoked looks the server's certificate up in the lists. With sslmode=verify-ca it is pgconn that verifies, and does not
// tell the chains.
func checkRevoked(lists *revocation.Lists, config *tls.Config, state tls.ConnectionState) error {
	chains := state.VerifiedChains
	if len(chains) == 0 && len(state.PeerCertificates) > 0 {
		between := x509.NewCertPool()
		for _, c := range state.PeerCertificates[1:] {
			between.AddCert(c)
		}
		var err error
		chains, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: config.RootCAs, Intermediates: between})
		if err != nil {
			return err
		}
	}
	return lists.Check(chains)
}
