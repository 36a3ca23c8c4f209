package config

import (
	"reflect"
	"slices"
	"testing"
)

// What is taken over, what waits for a restart, and what neither configuration loses by it.
func TestReload(t *testing.T) {
	old, next := Default(), Default()
	old.Listen.Auth.UsersFile = "same"
	next.Listen.Auth.Method, next.Listen.Auth.UsersFile, next.Listen.Auth.TrustLocal = AuthSCRAM, "same", true
	next.Listen.Auth.Users, next.Listen.Auth.Rules = []User{{Name: "u", Verifier: "v"}}, []AuthRule{{Type: "host", Method: "md5"}}
	next.Listen.TLS.CAFile = "ca"
	next.Log = Log{Level: "debug", Format: "json"}
	next.Listen.Addresses = []Address{"127.0.0.1:1"}
	next.Spool.Keep, next.Acknowledge.Flush.Name, next.Data.Dir = 2*GiB, "x", "/d"
	before, after := *old, *next
	merged, reloaded, waiting := old.Reload(next)
	if want := []string{"listen.tls.ca_file", "listen.auth.method", "listen.auth.users", "listen.auth.trust_local", "listen.auth.rules", "log.level", "listen.auth.users_file"}; !slices.Equal(reloaded, want) {
		t.Errorf("reloaded %v, want %v", reloaded, want)
	}
	if want := []string{"listen.addresses", "data.dir", "spool.keep", "acknowledge.flush", "log.format"}; !slices.Equal(waiting, want) {
		t.Errorf("waiting %v, want %v", waiting, want)
	}
	if !reflect.DeepEqual(*old, before) || !reflect.DeepEqual(*next, after) {
		t.Error("a configuration was changed")
	}
	want := before
	want.Listen.Auth, want.Listen.TLS, want.Log.Level = next.Listen.Auth, next.Listen.TLS, "debug"
	if !reflect.DeepEqual(*merged, want) {
		t.Errorf("got  %#v\nwant %#v", *merged, want)
	}
	again, reloaded, waiting := merged.Reload(merged)
	if !reflect.DeepEqual(again, merged) || len(waiting) != 0 || !slices.Equal(reloaded, []string{"listen.auth.users_file"}) {
		t.Errorf("with nothing changed: %v, %v", reloaded, waiting)
	}
}
