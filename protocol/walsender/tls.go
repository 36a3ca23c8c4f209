package walsender

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"walproxy/protocol/revocation"
)

// alpn is the application protocol of TLS that PostgreSQL 17 and newer select.
//
// Source: PostgreSQL src/include/libpq/pqcomm.h, PG_ALPN_PROTOCOL (17-18).
const (
	alpn       = "postgresql"
	sinceALPN  = 17
	maxPEMSize = 1 << 20
)

// TLSOptions name the files and bounds of the encryption of connections, as the server's ssl_* parameters do.
type TLSOptions struct {
	CertFile, KeyFile string   // PEM; the certificate first, then those between it and the root
	CAFile            string   // PEM; certificates that may sign those of clients. Empty: clients are not asked for one
	CRLFile           string   // PEM; certificates that were revoked. Empty: none
	MinVersion        string   // TLSv1.2 (the default) or TLSv1.3
	MaxVersion        string   // empty: none
	Ciphers           []string // of TLS 1.2, by IANA's names; empty: the Go library's choice
}

// TLS is what a listener encrypts with. Immutable; safe for concurrent use.
type TLS struct {
	config    *tls.Config
	preferred *tls.Config // config with ALPN
	endpoint  []byte      // tls-server-end-point of the certificate; nil if it has none
	clients   bool        // certificates of clients are asked for and verified
}

// LoadTLS reads the files. Errors show nothing of the key.
func LoadTLS(o TLSOptions) (*TLS, error) {
	if err := checkKeyFile(o.KeyFile); err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s with key %s: %w", o.CertFile, o.KeyFile, err)
	}
	t := &TLS{config: &tls.Config{
		Certificates:           []tls.Certificate{pair},
		SessionTicketsDisabled: true, // as PostgreSQL: each session proves itself anew
	}}
	if err := setVersions(t.config, o); err != nil {
		return nil, err
	}
	if t.config.CipherSuites, err = cipherSuites(o.Ciphers); err != nil {
		return nil, err
	}
	if err := t.verifyClients(o); err != nil {
		return nil, err
	}
	t.endpoint = endpoint(pair.Leaf)
	t.preferred = t.config.Clone()
	t.preferred.NextProtos = []string{alpn}
	return t, nil
}

// verifyClients asks clients for certificates, if there is something to verify them with.
func (t *TLS) verifyClients(o TLSOptions) error {
	if o.CAFile == "" {
		if o.CRLFile != "" {
			return errors.New("revoked certificates without certificates of those who sign: want both or none")
		}
		return nil
	}
	content, err := readPEM(o.CAFile)
	if err != nil {
		return err
	}
	t.config.ClientCAs = x509.NewCertPool()
	if !t.config.ClientCAs.AppendCertsFromPEM(content) {
		return fmt.Errorf("read %s: no certificate in it", o.CAFile)
	}
	t.config.ClientAuth, t.clients = tls.VerifyClientCertIfGiven, true
	if o.CRLFile == "" {
		return nil
	}
	lists, err := revocation.Load(o.CRLFile)
	if err != nil {
		return err
	}
	t.config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		return lists.Check(state.VerifiedChains)
	}
	return nil
}

// forMajor returns the configuration for a server of this major version; 0 is one that is not known yet.
func (t *TLS) forMajor(major int) *tls.Config {
	if major == 0 || major >= sinceALPN {
		return t.preferred
	}
	return t.config
}

// checkKeyFile wants a private key that others cannot read.
//
// Source: PostgreSQL src/backend/libpq/be-secure-common.c, check_ssl_key_file_permissions (13-18).
func checkKeyFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read private key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("private key %s is not a plain file", path)
	}
	others := os.FileMode(0o077)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
		others = 0o037 // a group of root's may read it, as Debian's ssl-cert
	}
	if info.Mode()&others != 0 {
		return fmt.Errorf("private key %s has group or world access: want mode 0600, or 0640 if it belongs to root", path)
	}
	return nil
}

func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxPEMSize {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, maxPEMSize)
	}
	return os.ReadFile(path)
}

var tlsVersions = map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}

func setVersions(config *tls.Config, o TLSOptions) error {
	config.MinVersion = tls.VersionTLS12
	set := func(version *uint16, text string) error {
		known, ok := tlsVersions[text]
		if text != "" && !ok {
			return fmt.Errorf("TLS version %q: want TLSv1.2 or TLSv1.3", text)
		}
		if ok {
			*version = known
		}
		return nil
	}
	if err := errors.Join(set(&config.MinVersion, o.MinVersion), set(&config.MaxVersion, o.MaxVersion)); err != nil {
		return err
	}
	if config.MaxVersion != 0 && config.MaxVersion < config.MinVersion {
		return fmt.Errorf("TLS versions from %s to %s: none", o.MinVersion, o.MaxVersion)
	}
	return nil
}

// cipherSuites finds suites by IANA's names. Those that Go calls insecure are refused.
func cipherSuites(names []string) ([]uint16, error) {
	var ids []uint16
	for _, name := range names {
		i := slices.IndexFunc(tls.CipherSuites(), func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("cipher suite %q is not one of %s", name, strings.Join(suiteNames(), ", "))
		}
		ids = append(ids, tls.CipherSuites()[i].ID)
	}
	return ids, nil
}

// suiteNames are those of TLS 1.2; the ones of 1.3 cannot be chosen.
func suiteNames() (names []string) {
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) {
			names = append(names, s.Name)
		}
	}
	return names
}

// endpoint is the certificate's hash for SCRAM-SHA-256-PLUS, by the hash of its signature, but SHA-256 where that is MD5 or
// SHA-1. nil if the signature has none (Ed25519): then the server does not offer channel binding.
//
// Source: RFC 5929 §4.1; PostgreSQL src/backend/libpq/be-secure-openssl.c, be_tls_get_certificate_hash (13-18).
func endpoint(leaf *x509.Certificate) []byte {
	var hash crypto.Hash
	switch leaf.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.SHA256WithRSA, x509.SHA256WithRSAPSS, x509.ECDSAWithSHA256:
		hash = crypto.SHA256
	case x509.SHA384WithRSA, x509.SHA384WithRSAPSS, x509.ECDSAWithSHA384:
		hash = crypto.SHA384
	case x509.SHA512WithRSA, x509.SHA512WithRSAPSS, x509.ECDSAWithSHA512:
		hash = crypto.SHA512
	default:
		return nil
	}
	h := hash.New()
	h.Write(leaf.Raw)
	return h.Sum(nil)
}
