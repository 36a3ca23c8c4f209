package stores

import "testing"

func TestOpen(t *testing.T) {
	for address, name := range map[string]string{
		"file:///var/lib/archive":  "file:///var/lib/archive",
		"file:///var/lib/archive/": "file:///var/lib/archive",
		"s3://wal":                 "s3://wal/",
		"s3://wal/a/b/":            "s3://wal/a/b",
		"s3://wal/a?region=x&endpoint=http://127.0.0.1:1": "s3://wal/a",
		"s3://wal/a?path_style=on&conditional=off":        "s3://wal/a",
	} {
		s, err := Open(address, Options{})
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if s.String() != name {
			t.Errorf("%s is called %s, want %s", address, s, name)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, address := range []string{
		"", "/var/lib", "file://host/dir", "file:dir", "file:///d?x=y", "s3://", "s3://a..b/x", "s3://wal/a b", "s3://wal/../b", "s3://key:secret@wal/a",
		"s3://wal/a?what=1", "s3://wal/a?path_style=yes", "s3://wal/a?region=a&region=b", "s3://wal/a?endpoint=ftp://host",
		"s3://wal/a?endpoint=http://host/path", "gs://wal/a", "s3://wal/%zz",
	} {
		if s, err := Open(address, Options{}); err == nil {
			t.Errorf("%q is taken as %s", address, s)
		}
	}
}
