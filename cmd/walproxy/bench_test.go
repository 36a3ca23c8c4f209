package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	file := filepath.Join(t.TempDir(), "wal")
	content := []byte(strings.Repeat("this is not WAL, and comes back nevertheless; ", 5000))
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	notWAL := "walproxy: " + file + " does not begin with a page of WAL: its bytes are measured as they are\n"
	code, out, stderr := command("bench", "--json", "--codec", "zstd", "--level", "1", "--flush", "64KiB", "--cpus", "1", file)
	var report struct {
		Total struct {
			RawBytes     int  `json:"raw_bytes"`
			EncodedBytes int  `json:"encoded_bytes"`
			Identical    bool `json:"identical"`
		} `json:"total"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitOK || stderr != notWAL {
		t.Fatalf("exit %d, %v, stderr %q", code, err, stderr)
	}
	if got := report.Total; got.RawBytes != len(content) || got.EncodedBytes < 100 || got.EncodedBytes > len(content)/10 || !got.Identical {
		t.Errorf("%+v of %d bytes", got, len(content))
	}
	code, out, stderr = command("bench", "--by-kind", "--latency", file)
	if code != exitOK || stderr != notWAL || !strings.Contains(out, "not WAL") || !strings.Contains(out, " frames; us per frame") {
		t.Errorf("exit %d, stderr %q, %s", code, stderr, out)
	}
	profile := filepath.Join(t.TempDir(), "profile")
	code, _, stderr = command("bench", "--cpu-profile", profile, file)
	if content, err := os.ReadFile(profile); code != exitOK || stderr != notWAL || err != nil || !strings.HasPrefix(string(content), "\x1f\x8b") {
		t.Errorf("exit %d, stderr %q, profile %q, %v", code, stderr, content, err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"bench", "--cpu-profile", profile + "/x", file}, exitFailure, "not a directory"},
		{[]string{"bench"}, exitUsage, "see walproxy help"},
		{[]string{"bench", file + ".none"}, exitFailure, "no such file"},
		{[]string{"bench", t.TempDir()}, exitFailure, "holds no WAL segments"},
		{[]string{"bench", os.DevNull}, exitFailure, "neither a file nor a directory"},
		{[]string{"bench", "--codec", "x", file}, exitUsage, "unknown codec"},
		{[]string{"bench", "--level", "77", file}, exitUsage, "level 77"},
		{[]string{"bench", "--codec", "none", "--level", "5", file}, exitUsage, "level 5: codec none has no levels"},
		{[]string{"bench", "--reset-distance", "3MiB", file}, exitUsage, "reset distance"},
		{[]string{"bench", "--flush", "always", file}, exitUsage, "want window, commit"},
		{[]string{"bench", "--cpus", "-1", file}, exitUsage, "-1 processors"},
		{[]string{"bench", "--peers=rar", file}, exitUsage, "want some of zstd -3"},
	} {
		if code, out, stderr := command(c.args...); code != c.code || out != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", c.args, code, out, stderr)
		}
	}
}

// A file or directory that holds WAL in another form is told what to do about it.
func TestBenchHints(t *testing.T) {
	dir := t.TempDir()
	data, archive := filepath.Join(dir, "data"), filepath.Join(dir, "archive")
	for _, d := range []string{filepath.Join(data, "pg_wal"), archive} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const segment = "000000010000000000000002"
	packed, empty := filepath.Join(archive, segment+".zst"), filepath.Join(archive, segment)
	for name, content := range map[string]string{packed: "\x28\xb5\x2f\xfdabc", empty: ""} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path string
		code int
		want string
	}{
		{data, exitFailure, "its pg_wal may: " + data + "/pg_wal"},
		{archive, exitFailure, segment + ".zst is compressed: decompress it and the others first"},
		{packed, exitOK, "is compressed with zstd: decompress it first"},
		{empty, exitOK, "is empty"},
	} {
		if code, _, stderr := command("bench", c.path); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, stderr %q", c.path, code, stderr)
		}
	}
}
