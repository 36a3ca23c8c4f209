package walsender

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/xdg-go/scram"
)

// Limits of a SCRAM verifier. PostgreSQL makes 16 bytes of salt and 4096 iterations.
const (
	maxSaltBytes  = 1024
	maxIterations = 1 << 24
	defaultRounds = 4096
	saltBytes     = 16

	verifierPrefix = "SCRAM-SHA-256$"
	md5Prefix      = "md5"
	maxUsersBytes  = 1 << 20
)

// Verifier proves the knowledge of a password without holding it. It is of SCRAM, or of MD5, which is as good as the password.
type Verifier struct {
	credentials scram.StoredCredentials
	md5         string // the 32 digits; "" for SCRAM
}

// IsMD5 reports whether the verifier is one for the method md5 only.
func (v Verifier) IsMD5() bool { return v.md5 != "" }

// ParseVerifier reads the forms that PostgreSQL keeps in pg_authid: SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey, and md5
// with 32 hexadecimal digits. Errors never show the text.
//
// Source: PostgreSQL src/backend/libpq/auth-scram.c, parse_scram_secret; crypt.c, get_password_type (13-18).
func ParseVerifier(text string) (Verifier, error) {
	if isMD5(text) {
		return Verifier{md5: text[len(md5Prefix):]}, nil
	}
	rest, found := strings.CutPrefix(text, verifierPrefix)
	factors, keys, found2 := strings.Cut(rest, "$")
	rounds, salt, found3 := strings.Cut(factors, ":")
	stored, server, found4 := strings.Cut(keys, ":")
	if !found || !found2 || !found3 || !found4 {
		return Verifier{}, fmt.Errorf("parse SCRAM verifier: want SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey")
	}
	n, err := strconv.Atoi(rounds)
	if err != nil || n < 1 || n > maxIterations {
		return Verifier{}, fmt.Errorf("parse SCRAM verifier: number of iterations out of range")
	}
	var decoded [3][]byte
	for i, part := range []string{salt, stored, server} {
		if decoded[i], err = base64.StdEncoding.DecodeString(part); err != nil {
			return Verifier{}, fmt.Errorf("parse SCRAM verifier: part %d is not base64", i+2)
		}
	}
	if len(decoded[0]) == 0 || len(decoded[0]) > maxSaltBytes || len(decoded[1]) != sha256.Size || len(decoded[2]) != sha256.Size {
		return Verifier{}, fmt.Errorf("parse SCRAM verifier: salt or key of a wrong length")
	}
	return Verifier{credentials: scram.StoredCredentials{
		KeyFactors: scram.KeyFactors{Salt: string(decoded[0]), Iters: n}, StoredKey: decoded[1], ServerKey: decoded[2],
	}}, nil
}

func isMD5(text string) bool {
	digits, found := strings.CutPrefix(text, md5Prefix)
	return found && len(digits) == 32 && strings.Trim(digits, "0123456789abcdef") == ""
}

// NewVerifier returns a verifier of a password, with a salt of its own.
func NewVerifier(password string) (Verifier, error) {
	salt := make([]byte, saltBytes)
	rand.Read(salt)
	credentials, err := derive(password, scram.KeyFactors{Salt: string(salt), Iters: defaultRounds})
	if err != nil {
		return Verifier{}, fmt.Errorf("make SCRAM verifier: %w", err)
	}
	return Verifier{credentials: credentials}, nil
}

// derive computes the keys of a password. Like PostgreSQL it takes a password that SASLprep refuses as it is.
func derive(password string, factors scram.KeyFactors) (scram.StoredCredentials, error) {
	client, err := scram.SHA256.NewClient("", password, "")
	if err != nil {
		client, err = scram.SHA256.NewClientUnprepped("", password, "")
	}
	if err != nil {
		return scram.StoredCredentials{}, err
	}
	return client.GetStoredCredentialsWithError(factors)
}

// secret returns PostgreSQL's form of the verifier.
func (v Verifier) secret() string {
	if v.md5 != "" {
		return md5Prefix + v.md5
	}
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("%s%d:%s$%s:%s", verifierPrefix, v.credentials.Iters, encode([]byte(v.credentials.Salt)),
		encode(v.credentials.StoredKey), encode(v.credentials.ServerKey))
}

// Passwords tell what a user must know. Safe for concurrent use.
type Passwords interface {
	// Lookup returns what there is of a user; false if there is no such user, or it has no password. An error says that this
	// cannot be told at the moment; its text is for the log.
	Lookup(ctx context.Context, user string) (Role, bool, error)
}

// Role is what is known of a user.
type Role struct {
	Verifier      Verifier
	NoReplication bool // may log in, but not for replication
}

// Users are the names that may log in by a password. Immutable once used; safe for concurrent use.
type Users struct {
	verifiers map[string]Verifier
}

// Lookup implements Passwords.
func (u *Users) Lookup(_ context.Context, user string) (Role, bool, error) {
	v, known := u.verifiers[user]
	return Role{Verifier: v}, known, nil
}

// NewUsers returns users from a name's verifier, or its password, to each.
func NewUsers(secrets map[string]string) (*Users, error) {
	u := &Users{verifiers: make(map[string]Verifier, len(secrets))}
	for name, secret := range secrets {
		if err := u.add(name, secret); err != nil {
			return nil, err
		}
	}
	return u, nil
}

func (u *Users) add(name, secret string) (err error) {
	var v Verifier
	switch {
	case name == "" || secret == "":
		return fmt.Errorf("user %q: name or password is empty", name)
	case strings.HasPrefix(secret, verifierPrefix), isMD5(secret):
		v, err = ParseVerifier(secret)
	default:
		v, err = NewVerifier(secret)
	}
	if err != nil {
		return fmt.Errorf("user %q: %w", name, err)
	}
	u.verifiers[name] = v
	return nil
}

// ReadUsers reads a password file: a line per user, name:verifier or name:password. Blank lines and lines that begin with
// # are skipped. Errors give the line's number and never its text.
func ReadUsers(path string) (*Users, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read password file: %w", err)
	}
	secrets, err := parseUsers(content)
	if err != nil {
		return nil, fmt.Errorf("read password file %s: %w", path, err)
	}
	return NewUsers(secrets)
}

func parseUsers(content []byte) (map[string]string, error) {
	if len(content) > maxUsersBytes {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", len(content), maxUsersBytes)
	}
	secrets := make(map[string]string)
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimRight(string(line), "\r\n")
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		name, secret, found := strings.Cut(text, ":")
		if !found || name == "" || secret == "" {
			return nil, fmt.Errorf("line %d: want name:verifier or name:password", number)
		}
		if _, twice := secrets[name]; twice {
			return nil, fmt.Errorf("line %d: the name occurs before", number)
		}
		secrets[name] = secret
	}
	return secrets, nil
}
