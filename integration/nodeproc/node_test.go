package nodeproc_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"walproxy/integration/nodeproc"
)

// This test binary also plays the program that it runs as a node, so that the package is tested without a walproxy.
const standInEnv = "NODEPROC_STAND_IN"

func TestMain(m *testing.M) {
	if os.Getenv(standInEnv) == "" {
		os.Exit(m.Run())
	}
	if err := standIn(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// standIn answers as a node's HTTP server does, and is ready from the second question on. SIGTERM ends it with code 0.
func standIn(args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	address := flags.String("http", "", "")
	config := flags.String("config", "", "")
	upstream := flags.String("upstream", "", "")
	_, _ = flags.String("data", "", ""), flags.String("listen", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *config != "" {
		text, err := os.ReadFile(*config)
		if err != nil {
			return err
		}
		*upstream = string(text)
	}
	if strings.Contains(*upstream, "nowhere") {
		return fmt.Errorf("no way to %s", *upstream)
	}
	asked := 0
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE walproxy_bytes_total counter\nwalproxy_bytes_total{side=\"a\"} 3\nwalproxy_bytes_total{side=\"b\"} 4\n"+
			"# TYPE walproxy_lag gauge\nwalproxy_lag 0.5\n# TYPE go_threads gauge\ngo_threads 9\n")
	})
	fmt.Println("upstream is", *upstream)
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() { _ = http.ListenAndServe(*address, nil) }()
	<-terminated
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newNode(t *testing.T, options nodeproc.Options) (context.Context, *nodeproc.Node) {
	t.Helper()
	t.Setenv(standInEnv, "1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	options.Binary = os.Args[0]
	options.Dir = filepath.Join(t.TempDir(), "node")
	node, err := nodeproc.New(options)
	must(t, err)
	t.Cleanup(node.Kill)
	return ctx, node
}

func TestStartMetricsStop(t *testing.T) {
	ctx, node := newNode(t, nodeproc.Options{Upstream: "host=primary"})
	must(t, node.StartReady(ctx))
	values, err := node.Metrics()
	must(t, err)
	if len(values) != 2 || values["walproxy_bytes_total"] != 7 || values["walproxy_lag"] != 0.5 {
		t.Errorf("metrics are %v", values)
	}
	must(t, node.Stop(ctx))
	if node.Process().Running() {
		t.Error("running after Stop")
	}
	must(t, node.Stop(ctx)) // a second time does nothing
}

func TestKillAndStartAgain(t *testing.T) {
	ctx, node := newNode(t, nodeproc.Options{Config: "upstream: host=primary"})
	for range 2 {
		must(t, node.StartReady(ctx))
		node.Kill()
		if node.Process().Running() {
			t.Error("running after Kill")
		}
	}
	if n := strings.Count(node.Log(), "upstream is upstream: host=primary\n"); n != 2 {
		t.Errorf("the log holds %d starts, want 2:\n%s", n, node.Log())
	}
}

func TestEarlyEndShowsTheLog(t *testing.T) {
	ctx, node := newNode(t, nodeproc.Options{Upstream: "host=nowhere"})
	err := node.StartReady(ctx)
	if err == nil || !strings.Contains(err.Error(), "no way to host=nowhere") || ctx.Err() != nil {
		t.Fatalf("error is %v", err)
	}
}
