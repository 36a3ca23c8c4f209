// Package integration tests the built walproxy against real PostgreSQL servers; nothing is mocked.
//
// This file builds the program, harness_test.go starts things and ends them with their test, and every other file is one
// subject. Environment: WALPROXY_SEED repeats a run's random choices, WALPROXY_SOAK=1 makes the fault tests long,
// WALPROXY_SOAK_TIME=3m sets how long those of them go on that are not counted in rounds,
// WALPROXY_MAJORS=all runs conformance tests also on versions that do not differ from those that they run on.
package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"walproxy/integration/pgcluster"
)

// buildDir holds the program under test, and templates the data directories that servers begin with, while the tests run.
var (
	buildDir  string
	templates *pgcluster.Templates
)

func TestMain(m *testing.M) {
	os.Exit(run(pgcluster.WithTemplates(m, &templates)))
}

func run(tests pgcluster.Tests) int {
	var err error
	if buildDir, err = pgcluster.TempDir("walproxy-test-"); err != nil { // servers call walproxy too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(buildDir) }()
	return tests.Run()
}

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "walproxy")
	cmd := exec.Command("go", "build", "-o", path, "walproxy/cmd/walproxy")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build walproxy: %w\n%s", err, out)
	}
	return path, nil
})

// binary returns the path of walproxy, built when the first test asks for it.
func binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	must(t, err)
	return path
}
