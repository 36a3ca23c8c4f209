package config

import (
	"errors"
	"fmt"
	"slices"

	"walproxy/protocol/walsender"
	"walproxy/protocol/walsender/authquery"
)

// Options returns what walsender reads.
func (t TLS) Options() walsender.TLSOptions {
	return walsender.TLSOptions{
		CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile, CRLFile: t.CRLFile,
		MinVersion: string(t.MinVersion), MaxVersion: string(t.MaxVersion), Ciphers: t.Ciphers,
	}
}

// check reads the files, as SIGHUP and start will.
func (t TLS) check(p *problems) {
	if t.CertFile == "" {
		for key, value := range map[string]string{"key_file": t.KeyFile, "ca_file": t.CAFile, "crl_file": t.CRLFile} {
			if value != "" {
				p.add("listen.tls."+key, "needs listen.tls.cert_file")
			}
		}
		return
	}
	if t.KeyFile == "" {
		p.add("listen.tls.key_file", "is missing: listen.tls.cert_file needs its private key")
		return
	}
	_, err := walsender.LoadTLS(t.Options())
	p.addError("listen.tls", err)
}

// rules returns the rules; the error is of the rule with the index.
func (a Auth) rules() ([]walsender.Rule, int, error) {
	if len(a.Rules) == 0 {
		if a.Method == AuthTrust {
			return nil, 0, nil
		}
		return walsender.PasswordRules(a.TrustLocal), 0, nil
	}
	rules := make([]walsender.Rule, 0, len(a.Rules))
	for i, r := range a.Rules {
		rule, err := walsender.NewRule(walsender.Rule{
			Type: r.Type, Databases: r.Database, Users: r.User, Address: r.Address,
			Method: walsender.Method(r.Method), ClientCert: r.ClientCert, Map: r.Map,
		})
		if err != nil {
			return nil, i, err
		}
		rules = append(rules, rule)
	}
	return rules, 0, nil
}

func (a Auth) mappings() ([]walsender.Mapping, int, error) {
	var mappings []walsender.Mapping
	for i, m := range a.Maps {
		mapping, err := walsender.NewMapping(walsender.Mapping{Map: m.Map, System: m.System, User: m.User})
		if err != nil {
			return nil, i, err
		}
		mappings = append(mappings, mapping)
	}
	return mappings, 0, nil
}

// Access returns who may connect, with the files read. Passwords is what listen.auth names but for the query.
func (l Listen) Access() (walsender.Access, error) {
	a := walsender.Access{Plaintext: l.TLS.Plaintext == PlaintextAllow, MaxFailures: l.Auth.MaxFailures}
	var err error
	if a.Rules, _, err = l.Auth.rules(); err != nil {
		return a, err
	}
	if a.Mappings, _, err = l.Auth.mappings(); err != nil {
		return a, err
	}
	if !slices.Contains(l.Auth.Replication, "all") {
		a.Replicators = append([]string{}, l.Auth.Replication...)
	}
	if l.TLS.CertFile != "" {
		if a.TLS, err = walsender.LoadTLS(l.TLS.Options()); err != nil {
			return a, err
		}
	}
	users, err := l.Auth.passwords()
	if users != nil {
		a.Passwords = users
	}
	return a, err
}

// passwords returns the users of the configuration or the file; nil if it has none.
func (a Auth) passwords() (*walsender.Users, error) {
	switch {
	case a.UsersFile != "":
		return walsender.ReadUsers(a.UsersFile)
	case len(a.Users) == 0:
		return nil, nil
	}
	secrets := make(map[string]string, len(a.Users))
	for _, u := range a.Users {
		secrets[u.Name] = string(u.Verifier)
	}
	return walsender.NewUsers(secrets)
}

// Options returns what authquery takes.
func (q AuthQuery) Options() authquery.Options {
	return authquery.Options{Conninfo: string(q.Conninfo), SQL: q.SQL, Cache: q.Cache, Stale: q.Stale}
}

// needsPasswords reports whether somebody may have to prove a password.
func (a Auth) needsPasswords() bool {
	if len(a.Rules) == 0 {
		return a.Method == AuthSCRAM
	}
	return slices.ContainsFunc(a.Rules, func(r AuthRule) bool {
		return slices.Contains([]walsender.Method{walsender.MethodPassword, walsender.MethodMD5, walsender.MethodSCRAM}, walsender.Method(r.Method))
	})
}

func (a Auth) checkRules(p *problems, t TLS) {
	rules, i, err := a.rules()
	p.addError(fmt.Sprintf("listen.auth.rules[%d]", i), err)
	for i, r := range rules {
		switch {
		case r.Type == walsender.ConnHostSSL && t.CertFile == "":
			p.add(fmt.Sprintf("listen.auth.rules[%d]", i), "hostssl needs listen.tls.cert_file")
		case r.ClientCert != "" && t.CAFile == "":
			p.add(fmt.Sprintf("listen.auth.rules[%d]", i), "certificates of clients need listen.tls.ca_file")
		case r.Map != "" && !slices.ContainsFunc(a.Maps, func(m Mapping) bool { return m.Map == r.Map }):
			p.add(fmt.Sprintf("listen.auth.rules[%d].map", i), "%q is not in listen.auth.maps", r.Map)
		}
	}
	_, i, err = a.mappings()
	p.addError(fmt.Sprintf("listen.auth.maps[%d]", i), err)
	if len(a.Rules) > 0 && (a.Method != AuthTrust || a.TrustLocal) {
		p.add("listen.auth.rules", "listen.auth.method and trust_local are the short form: leave them out, or the rules")
	}
	if len(a.Replication) == 0 {
		p.addError("listen.auth.replication", errors.New("is empty: nobody could read WAL"))
	}
	if a.MaxFailures < 0 {
		p.add("listen.auth.max_failures", "%d: must not be below 0 (0 means no bound)", a.MaxFailures)
	}
	a.Query.check(p)
}

func (q AuthQuery) check(p *problems) {
	if q.Conninfo == "" {
		return
	}
	p.addError("listen.auth.query.conninfo", q.Conninfo.check())
	if q.SQL == "" {
		p.add("listen.auth.query.sql", "is empty")
	}
	if q.Cache < 0 || q.Stale < q.Cache {
		p.add("listen.auth.query.stale", "%s: must not be below listen.auth.query.cache, %s, which must not be below 0", q.Stale, q.Cache)
	}
}
