package integration

import (
	"os/exec"
	"testing"
)

// TestAlertRules has Prometheus' own tool check the alerts, and play series against them.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v; install it with: integration/install-tools.sh (Debian, Ubuntu, as root: apt-get install prometheus)", err)
	}
	for _, args := range [][]string{
		{"check", "rules", "../configs/walproxy.rules.yaml"},
		{"test", "rules", "testdata/alerts.yaml"},
	} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
