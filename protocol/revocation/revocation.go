// Package revocation refuses certificates that their signers have revoked: it reads certificate revocation lists (CRLs) and
// looks chains up in them, as OpenSSL does for the server's ssl_crl_file and libpq's sslcrl.
package revocation

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// maxBytes bounds a file of lists.
const maxBytes = 16 << 20

var (
	// ErrRevoked is the class of errors about a certificate that was revoked.
	ErrRevoked = errors.New("certificate was revoked")
	// ErrNoList is the class of errors about a signer whose list is missing, forged or out of date.
	ErrNoList = errors.New("no valid revocation list")
)

// Lists are the revocation lists of any number of signers. Immutable; safe for concurrent use.
type Lists struct{ lists []*x509.RevocationList }

// Load reads all lists of PEM files.
func Load(files ...string) (*Lists, error) {
	l := new(Lists)
	for _, file := range files {
		info, err := os.Stat(file)
		if err == nil && info.Size() > maxBytes {
			err = fmt.Errorf("larger than %d bytes", maxBytes)
		}
		var content []byte
		if err == nil {
			content, err = os.ReadFile(file)
		}
		if err == nil {
			err = l.add(content)
		}
		if err != nil {
			return nil, fmt.Errorf("read revocation list %s: %w", file, err)
		}
	}
	return l, nil
}

// LoadDir reads the files of a directory in which OpenSSL finds lists by a hash of their signer: those named HASH.rN.
func LoadDir(dir string) (*Lists, error) {
	files, err := filepath.Glob(filepath.Join(dir, "????????.r[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("read revocation lists in %s: %w", dir, err)
	}
	return Load(files...)
}

// Add returns what is in l or in other, either of which may be nil.
func (l *Lists) Add(other *Lists) *Lists {
	switch {
	case l == nil:
		return other
	case other == nil:
		return l
	}
	return &Lists{append(append([]*x509.RevocationList{}, l.lists...), other.lists...)}
}

func (l *Lists) add(content []byte) error {
	found := false
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			continue
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return err
		}
		l.lists = append(l.lists, list)
		found = true
	}
	if !found {
		return errors.New("no list in it")
	}
	return nil
}

// Check returns nil if one of the chains, which were verified, has no certificate that was revoked. Every signer needs a
// list that is valid now.
//
// Source: PostgreSQL src/backend/libpq/be-secure-openssl.c, be_tls_init: X509_V_FLAG_CRL_CHECK_ALL (13-18).
func (l *Lists) Check(chains [][]*x509.Certificate) error {
	err := fmt.Errorf("%w: the certificate was not verified", ErrNoList)
	for _, chain := range chains {
		if err = l.checkChain(chain, time.Now()); err == nil {
			return nil
		}
	}
	return err
}

func (l *Lists) checkChain(chain []*x509.Certificate, now time.Time) error {
	for i, cert := range chain {
		signer := cert // of a root
		if i+1 < len(chain) {
			signer = chain[i+1]
		}
		if err := l.checkOne(cert, signer, now); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lists) checkOne(cert, signer *x509.Certificate, now time.Time) error {
	known := false
	for _, list := range l.lists {
		if !bytes.Equal(list.RawIssuer, signer.RawSubject) || list.CheckSignatureFrom(signer) != nil ||
			now.Before(list.ThisUpdate) || !list.NextUpdate.IsZero() && now.After(list.NextUpdate) {
			continue
		}
		known = true
		for _, entry := range list.RevokedCertificateEntries {
			if entry.SerialNumber.Cmp(cert.SerialNumber) == 0 {
				return fmt.Errorf("%w: %s by %s", ErrRevoked, cert.Subject, signer.Subject)
			}
		}
	}
	if !known {
		return fmt.Errorf("%w of %s", ErrNoList, signer.Subject)
	}
	return nil
}
