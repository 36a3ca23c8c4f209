package walreceiver

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/integration/tlstest"
)

// TestConninfoSecurity: parameters that pgconn does not know work or are refused; none reaches the server.
func TestConninfoSecurity(t *testing.T) {
	ca, err := tlstest.NewCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	list, err := ca.Revoke("ca.crl", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, "host=h1,h2 user=u hostaddr=192.0.2.1,192.0.2.2 sslmode=verify-ca sslrootcert="+ca.File+
		" sslcrl="+list+" ssl_min_protocol_version=TLSv1.2 ssl_max_protocol_version=TLSv1.3 channel_binding=require")
	for i, want := range []string{"192.0.2.1", "192.0.2.2"} {
		host := s.hosts()[i]
		if got, err := host.LookupFunc(context.Background(), host.Host); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s is looked for at %v, %v", host.Host, got, err)
		}
	}
	if c := s.config.TLSConfig; c.MinVersion != tls.VersionTLS12 || c.MaxVersion != tls.VersionTLS13 || c.VerifyConnection == nil {
		t.Errorf("TLS %+v", c)
	}
	if s.config.ChannelBinding != "require" || len(s.config.RuntimeParams) != 2 {
		t.Errorf("channel binding %q, parameters %v", s.config.ChannelBinding, s.config.RuntimeParams)
	}
	for conninfo, want := range map[string]string{
		"host=h hostaddr=192.0.2.1,192.0.2.2": "2 addresses for 1 hosts",
		"host=h hostaddr=h":                   "is not an address",
		"host=h sslcrl=/nowhere":              "/nowhere",
		"host=h ssl_min_protocol_version=SSL": "want TLSv1",
		"host=h ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2": "is above",
		"host=h oauth_client_secret=x":                                             "oauth_client_secret is not supported",
		"host=h load_balance_hosts=maybe":                                          "want disable or random",
		"host=h tcp_user_timeout=soon":                                             "want a number",
		"host=h gssencmode=require":                                                "gssencmode=require is not supported",
		"host=h channel_binding=maybe":                                             "channel_binding",
		"host=h sslnegotiation=sometimes":                                          "",
	} {
		o := Options{Conninfo: conninfo + " user=u"}
		if err := o.applyDefaults(); err != nil {
			t.Fatal(err)
		}
		if _, err := parseConninfo(&o); want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", conninfo, err, want)
		}
	}
}

// TestSameHostTwice: a name that stands there twice is two hosts, each with its address.
func TestSameHostTwice(t *testing.T) {
	for _, mode := range []string{"prefer", "disable", "require"} {
		s := parse(t, "host=h,h user=u hostaddr=192.0.2.1,192.0.2.2 sslmode="+mode)
		for i, host := range s.hosts() {
			if got, err := host.LookupFunc(t.Context(), host.Host); err != nil || len(got) != 1 || got[0] != s.addresses[i] {
				t.Errorf("%s: host %d is at %v, %v", mode, i, got, err)
			}
		}
		if n := len(s.hosts()); n != 2 {
			t.Errorf("%s: %d hosts", mode, n)
		}
	}
}

// TestLoadBalance: with random each host is the first one now and then, keeping its own address and password.
func TestLoadBalance(t *testing.T) {
	s := parse(t, "host=h1,h2,h3 user=u hostaddr=192.0.2.1,192.0.2.2,192.0.2.3 load_balance_hosts=random sslmode=prefer")
	first := map[string]bool{}
	for tries := 0; len(first) < 3; tries++ {
		hosts := s.hosts()
		first[hosts[0].Host] = true
		for _, h := range hosts {
			if got, err := h.LookupFunc(context.Background(), h.Host); err != nil || got[0] != "192.0.2."+h.Host[1:] || len(h.Fallbacks) != 1 {
				t.Fatalf("%s is looked for at %v, %v, with %d fallbacks", h.Host, got, err, len(h.Fallbacks))
			}
		}
		if tries > 1000 {
			t.Fatalf("only %v are ever the first", first)
		}
	}
}
