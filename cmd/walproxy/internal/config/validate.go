package config

import (
	"errors"
	"fmt"
	"time"

	"walproxy/protocol"
	"walproxy/protocol/link"
	"walproxy/protocol/walsender"
	"walproxy/recompress/zstd"
	"walproxy/slots"
)

func (c *Config) check(p *problems) {
	c.Upstream.check(p)
	c.Listen.check(p)
	if c.Data.Dir == "" {
		p.add("data.dir", "is missing: want a directory for the spool, made if it is not there")
	}
	c.Recompress.check(p)
	c.Spool.check(p, c.Recompress)
	c.Acknowledge.check(p, c.Upstream.Slot)
	c.Archive.check(p)
	p.addError("http.address", c.HTTP.Address.checkHTTP())
}

func (u *Upstream) check(p *problems) {
	p.addError("upstream.conninfo", u.Conninfo.check())
	switch {
	case u.Slot == "" && u.CreateSlot:
		p.add("upstream.create_slot", "needs upstream.slot, the name of the slot to create")
	case u.Slot != "":
		var refused *protocol.Error
		if errors.As(protocol.CheckSlotName(u.Slot), &refused) {
			p.add("upstream.slot", "%s", refused.Message)
		}
	}
	positive(p, "upstream.status_interval", u.StatusInterval)
	positive(p, "upstream.receiver_timeout", u.ReceiverTimeout)
	positive(p, "upstream.backoff_min", u.BackoffMin)
	positive(p, "upstream.backoff_max", u.BackoffMax)
	if u.BackoffMax < u.BackoffMin {
		p.add("upstream.backoff_max", "%s is below upstream.backoff_min, %s", u.BackoffMax, u.BackoffMin)
	}
}

func positive(p *problems, key string, d time.Duration) {
	if d <= 0 {
		p.add(key, "%s: must be above 0", d)
	}
}

func (l *Listen) check(p *problems) {
	if len(l.Addresses) == 0 {
		p.add("listen.addresses", "is empty: want at least one address")
	}
	seen := make(map[Address]bool)
	for i, a := range l.Addresses {
		key := fmt.Sprintf("listen.addresses[%d]", i)
		p.addError(key, a.check())
		if seen[a] {
			p.add(key, "%q is given twice", a)
		}
		seen[a] = true
		switch {
		case a.Local():
		case l.Auth.Method == AuthTrust && len(l.Auth.Rules) == 0:
			p.add(key, "%s can be reached from elsewhere, which listen.auth.method trust does not allow: use scram-sha-256, a loopback address or a unix socket", a)
		case l.TLS.CertFile == "" && l.TLS.Plaintext != PlaintextAllow:
			p.add(key, "%s can be reached from elsewhere, and WAL would pass in the clear: give listen.tls.cert_file and key_file, or, inside a tunnel, listen.tls.plaintext: allow", a)
		}
	}
	l.TLS.check(p)
	l.Auth.check(p)
	l.checkSQL(p)
	l.Auth.checkRules(p, l.TLS)
	positive(p, "listen.authentication_timeout", l.AuthenticationTimeout)
	positive(p, "listen.drain_timeout", l.DrainTimeout)
	if l.WALSenderTimeout < 0 {
		p.add("listen.wal_sender_timeout", "%s: must not be below 0 (0 means none)", l.WALSenderTimeout)
	}
	if l.MaxConnectionsPerUser < 0 {
		p.add("listen.max_connections_per_user", "%d: must not be below 0 (0 means no bound)", l.MaxConnectionsPerUser)
	}
	if l.MaxConnections < 1 {
		p.add("listen.max_connections", "%d: must be above 0", l.MaxConnections)
	}
}

func (l *Listen) checkSQL(p *problems) {
	if l.SQL == SQLRefuse {
		if len(l.SQLUsers) > 0 {
			p.add("listen.sql_users", "would be ignored: listen.sql is refuse")
		}
		return
	}
	if len(l.SQLUsers) == 0 {
		p.add("listen.sql_users", "is empty: listen.sql relay needs the users whose SQL is relayed, and as whom")
	}
	seen := make(map[string]bool)
	for i, u := range l.SQLUsers {
		key := fmt.Sprintf("listen.sql_users[%d]", i)
		switch {
		case u.Name == "":
			p.add(key+".name", "is missing")
		case seen[u.Name]:
			p.add(key+".name", "%q is given twice", u.Name)
		}
		seen[u.Name] = true
		p.addError(key+".conninfo", u.Conninfo.check())
	}
}

func (a *Auth) check(p *problems) {
	if a.Method == AuthTrust && len(a.Rules) == 0 {
		if len(a.Users) > 0 {
			p.add("listen.auth.users", "would be ignored: listen.auth.method is trust")
		}
		if a.UsersFile != "" {
			p.add("listen.auth.users_file", "would be ignored: listen.auth.method is trust")
		}
		return
	}
	if a.needsPasswords() && len(a.Users) == 0 && a.UsersFile == "" && a.Query.Conninfo == "" {
		p.add("listen.auth.users", "passwords need listen.auth.users, listen.auth.users_file or listen.auth.query")
	}
	if a.UsersFile != "" {
		_, err := walsender.ReadUsers(a.UsersFile)
		p.addError("listen.auth.users_file", err)
		if len(a.Users) > 0 {
			p.add("listen.auth.users", "listen.auth.users_file is given too: put all users in one place")
		}
	}
	seen := make(map[string]bool)
	for i, u := range a.Users {
		key := fmt.Sprintf("listen.auth.users[%d]", i)
		switch {
		case u.Name == "":
			p.add(key+".name", "is missing")
		case seen[u.Name]:
			p.add(key+".name", "%q is given twice", u.Name)
		}
		seen[u.Name] = true
		p.addError(key+".verifier", checkVerifier(string(u.Verifier)))
	}
}

// checkVerifier's error shows nothing of the text.
func checkVerifier(text string) error {
	if text == "" {
		return errors.New("is missing: want the user's rolpassword from pg_authid, which begins with SCRAM-SHA-256$")
	}
	if _, err := walsender.ParseVerifier(text); err != nil {
		return fmt.Errorf("%w, as in rolpassword of pg_authid", err)
	}
	return nil
}

// check looks at each rule in a policy that is otherwise good, so that the problem gets the rule's key.
func (a Acknowledge) check(p *problems, slot string) {
	good := slots.DefaultPolicy()
	p.addError("acknowledge.write", slots.Policy{Write: a.Write.Rule, Flush: good.Flush, Apply: good.Apply}.Validate())
	p.addError("acknowledge.flush", slots.Policy{Write: good.Write, Flush: a.Flush.Rule, Apply: good.Apply}.Validate())
	p.addError("acknowledge.apply", slots.Policy{Write: good.Write, Flush: good.Flush, Apply: a.Apply.Rule}.Validate())
	if a.Flush.Kind == slots.RuleNone && slot != "" {
		p.add("acknowledge.flush", "none would keep upstream.slot from ever advancing, and the upstream would keep all of its WAL")
	}
}

func (a *Archive) check(p *problems) {
	p.addError("archive.store", a.Store.check())
	var refused *protocol.Error
	if errors.As(protocol.CheckSlotName(a.Slot), &refused) {
		p.add("archive.slot", "%s", refused.Message)
	}
	if a.Tail && a.Store == "" {
		p.add("archive.tail", "needs archive.store")
	}
	positive(p, "archive.tail_interval", a.TailInterval)
	positive(p, "archive.timeout", a.Timeout)
}

func (r *Recompress) check(p *problems) {
	if !zstd.ValidLevel(r.Level) {
		p.add("recompress.level", "%d is not one of %v", r.Level, zstd.Levels)
	}
	if !link.ValidResetDistance(uint64(r.ResetDistance)) {
		p.add("recompress.reset_distance", "%s: must be a power of two from 1MiB to 64MiB", r.ResetDistance)
	}
	if r.Hold < 0 || r.Hold > time.Second {
		p.add("recompress.hold", "%s: must be from 0 to 1s", r.Hold)
	}
}

func (s *Spool) check(p *problems, r Recompress) {
	// Two WAL segments and two windows must fit. How large segments are the node learns from its upstream, and checks again.
	if least := 4 * r.ResetDistance; s.Cap != 0 && s.Cap < least {
		p.add("spool.cap", "%s: must be at least four times recompress.reset_distance, %s, or 0 for none", s.Cap, least)
	}
}
