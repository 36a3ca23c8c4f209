package revocation_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"walproxy/integration/tlstest"
	"walproxy/protocol/revocation"
)

func TestRevocation(t *testing.T) {
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ca, err := tlstest.NewCA(t.TempDir(), "ca")
	try(err)
	good, err := ca.Client("good")
	try(err)
	bad, err := ca.Client("bad")
	try(err)
	soon := time.Now().Add(time.Hour)
	current, err := ca.Revoke("current.crl", soon, bad)
	try(err)
	old, err := ca.Revoke("old.crl", time.Now().Add(-time.Minute))
	try(err)
	stranger, err := tlstest.NewCA(t.TempDir(), "ca") // of the same name
	try(err)
	forged, err := stranger.Revoke("forged.crl", soon)
	try(err)
	for _, c := range []struct {
		file string
		pair tlstest.Pair
		want error
	}{
		{current, good, nil}, {current, bad, revocation.ErrRevoked}, {old, good, revocation.ErrNoList}, {forged, good, revocation.ErrNoList},
	} {
		lists, err := revocation.Load(c.file)
		try(err)
		chains, err := c.pair.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		try(err)
		if err := lists.Check(chains); !errors.Is(err, c.want) {
			t.Errorf("%s with %s: %v, want %v", c.pair.Cert, c.file, err, c.want)
		}
	}
	empty, err := revocation.Load()
	try(err)
	if err := empty.Check(nil); !errors.Is(err, revocation.ErrNoList) {
		t.Errorf("a certificate that was not verified: %v", err)
	}
	content, err := os.ReadFile(current)
	try(err)
	dir := t.TempDir()
	try(os.WriteFile(filepath.Join(dir, "0123abcd.r0"), content, 0o600))
	lists, err := revocation.LoadDir(dir)
	try(err)
	chains, err := bad.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	try(err)
	if err := empty.Add(lists).Check(chains); !errors.Is(err, revocation.ErrRevoked) {
		t.Errorf("from a directory: %v", err)
	}
	for name, content := range map[string]string{"empty": "", "certificate": "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"} {
		file := filepath.Join(dir, name)
		try(os.WriteFile(file, []byte(content), 0o600))
		if _, err := revocation.Load(file); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
