package config

import (
	"reflect"
)

// Reload returns c with what of next can be taken over while a node runs: who may log in, and the log's level. reloaded are the
// keys that this changes, and listen.auth.users_file if a file is read again; waiting those of next that differ and need a
// restart. c and next stay as they are. The result must be checked: next's part may not go with c's.
func (c *Config) Reload(next *Config) (merged *Config, reloaded, waiting []string) {
	copied := *c
	merged = &copied
	merged.Listen.Auth, merged.Log.Level = next.Listen.Auth, next.Log.Level
	reloaded, waiting = changed(*c, *merged), changed(*merged, *next)
	if file := "listen.auth.users_file"; merged.Listen.Auth.UsersFile == c.Listen.Auth.UsersFile && c.Listen.Auth.UsersFile != "" {
		reloaded = append(reloaded, file)
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
