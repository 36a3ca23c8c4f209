package config

import (
	"reflect"
)

// Reload returns c with what of next can be taken over while a node runs: who may log in, how connections are encrypted, and
// the log's level. reloaded are the keys that this changes, and those of files that are read again; waiting those of next that differ and need a
// restart. c and next stay as they are. The result must be checked: next's part may not go with c's.
func (c *Config) Reload(next *Config) (merged *Config, reloaded, waiting []string) {
	copied := *c
	merged = &copied
	merged.Listen.Auth, merged.Listen.TLS, merged.Log.Level = next.Listen.Auth, next.Listen.TLS, next.Log.Level
	reloaded, waiting = changed(*c, *merged), changed(*merged, *next)
	for _, file := range []struct{ key, before, after string }{
		{"listen.auth.users_file", c.Listen.Auth.UsersFile, merged.Listen.Auth.UsersFile},
		{"listen.tls.cert_file", c.Listen.TLS.CertFile, merged.Listen.TLS.CertFile},
	} {
		if file.before == file.after && file.after != "" {
			reloaded = append(reloaded, file.key)
		}
	}
	return merged, reloaded, waiting
}

// changed returns the keys whose values differ, in the order of the configuration; a list is one key.
func changed(a, b Config) (keys []string) {
	var walk func(a, b reflect.Value, key string)
	walk = func(a, b reflect.Value, key string) {
		if a.Kind() != reflect.Struct || a.Type().Field(0).Tag.Get(keyTag) == "" {
			if !reflect.DeepEqual(a.Interface(), b.Interface()) {
				keys = append(keys, key)
			}
			return
		}
		for i := range a.NumField() {
			walk(a.Field(i), b.Field(i), join(key, a.Type().Field(i).Tag.Get(keyTag)))
		}
	}
	walk(reflect.ValueOf(a), reflect.ValueOf(b), "")
	return keys
}
