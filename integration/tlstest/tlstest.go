// Package tlstest makes certificates for tests: authorities, certificates of servers and clients, revocation lists.
package tlstest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA signs certificates and keeps them as files in one directory. Not safe for concurrent use.
type CA struct {
	Dir  string
	File string // its own certificate, PEM
	cert *x509.Certificate
	key  crypto.Signer
	next int64 // serial number
}

// Pair are the files of a certificate and its private key, PEM.
type Pair struct {
	Cert, Key string
	Leaf      *x509.Certificate
}

// NewCA makes an authority whose files are in dir, which must be there.
func NewCA(dir, name string) (*CA, error) {
	ca := &CA{Dir: dir, File: filepath.Join(dir, name+".crt"), next: 2}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca.key = key
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return ca, write(ca.File, "CERTIFICATE", der, 0o644)
}

// Pool returns a pool that holds the authority.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Server makes the certificate of a server with these names or addresses, in the files name.crt and name.key.
func (ca *CA) Server(name string, hosts ...string) (Pair, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(name, template)
}

// Client makes the certificate of a client whose common name is name, in the files name.crt and name.key.
func (ca *CA) Client(name string) (Pair, error) {
	return ca.issue(name, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (ca *CA) issue(name string, template *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = big.NewInt(ca.next)
	ca.next++
	template.NotBefore, template.NotAfter = ca.cert.NotBefore, ca.cert.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	pair := Pair{Cert: filepath.Join(ca.Dir, name+".crt"), Key: filepath.Join(ca.Dir, name+".key")}
	if pair.Leaf, err = x509.ParseCertificate(der); err != nil {
		return Pair{}, err
	}
	if err := write(pair.Cert, "CERTIFICATE", der, 0o644); err != nil {
		return Pair{}, err
	}
	return pair, write(pair.Key, "PRIVATE KEY", keyDER, 0o600)
}

// Revoke writes the authority's revocation list, which names these certificates and is valid until then, to the file name.
func (ca *CA) Revoke(name string, until time.Time, pairs ...Pair) (file string, err error) {
	list := &x509.RevocationList{Number: big.NewInt(ca.next), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: until}
	ca.next++
	for _, p := range pairs {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: p.Leaf.SerialNumber, RevocationTime: list.ThisUpdate})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	if err != nil {
		return "", err
	}
	file = filepath.Join(ca.Dir, name)
	return file, write(file, "X509 CRL", der, 0o644)
}

func write(file, kind string, der []byte, mode os.FileMode) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}
