package walreceiver

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLoosePassfile: a password file that others can read is not used, wherever it is named; a password from elsewhere is.
func TestLoosePassfile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pg pass")
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("pg pass", "h1:*:replication:u:secret\n")
	write(".pgpass", "h1:*:replication:u:secret\n")
	services := write("services", "[up]\npassfile="+file+"\n")
	t.Setenv("HOME", dir)
	named := []string{
		"host=h1 user=u passfile='" + dir + "/pg pass'",
		`host=h1 user=u passfile = ` + dir + `/pg\ pass options='-c passfile=x' `,
		"postgresql://u@h1/x?passfile=" + dir + "/pg%20pass",
		"host=h1 user=u service=up servicefile=" + services,
		"host=h1 user=u",
		"postgres://u@h1",
	}
	for _, mode := range []os.FileMode{0o600, 0o400, 0o640, 0o604, 0o620} {
		for _, path := range []string{file, filepath.Join(dir, ".pgpass")} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		for _, conninfo := range named {
			s := parse(t, conninfo)
			good := mode&0o077 == 0
			if (s.loose == nil) != good || (s.hosts()[0].Password == "secret") != good || s.config.Host != "h1" || s.config.Database != "replication" {
				t.Errorf("mode %o: %s: password %q of %s@%s/%s, %v", mode, conninfo, s.hosts()[0].Password, s.config.User, s.config.Host, s.config.Database, s.loose)
			}
		}
		if s := parse(t, named[0]+" password=mine"); s.hosts()[0].Password != "mine" || s.loose != nil {
			t.Errorf("mode %o: password %q, %v", mode, s.hosts()[0].Password, s.loose)
		}
	}
	// A credential of the service manager is the service's alone, whatever the bits of its access list look like.
	t.Setenv("CREDENTIALS_DIRECTORY", dir+"/")
	t.Setenv("PGPASSFILE", file)
	for mode, want := range map[os.FileMode]string{0o440: "secret", 0o444: ""} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if s := parse(t, "host=h1 user=u"); s.hosts()[0].Password != want {
			t.Errorf("credential of mode %o: password %q, %v", mode, s.hosts()[0].Password, s.loose)
		}
	}
	if loosePassfile(dir) == nil || loosePassfile(filepath.Join(dir, "none")) != nil {
		t.Error("a directory counts as a password file, or a missing file as a bad one")
	}
}
