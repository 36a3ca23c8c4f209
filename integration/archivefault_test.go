package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"walproxy/archive"
	"walproxy/integration/faultproxy"
	"walproxy/integration/nodeproc"
	"walproxy/integration/pgcluster"
	"walproxy/integration/s3server"
	"walproxy/protocol"
)

// misbehaviour is what a faultyStore does to requests.
type misbehaviour int32

const (
	none         misbehaviour = iota
	serverError               // 500
	slowDown                  // 503, as a store that is overloaded answers
	resetHalfway              // the request's body is read in part, and the connection is cut
	cutAnswers                // the answer ends before its announced length
	slow                      // answers after a while
	misbehaviours
)

// faultyStore is an S3 server behind an HTTP proxy that misbehaves and a TCP proxy that cuts and stalls.
type faultyStore struct {
	walStore // by way of the proxies
	direct   walStore
	server   *s3server.Server
	proxy    *faultproxy.Proxy
	mode     atomic.Int32
	broken   atomic.Int32 // requests that a misbehaviour met
}

func startFaultyStore(ctx context.Context, t *testing.T) *faultyStore {
	t.Helper()
	server, err := s3server.New(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	s := &faultyStore{server: server, direct: walStore{url: server.URL("main"), env: server.Env()}}
	target, err := url.Parse(server.Endpoint())
	must(t, err)
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, pass) }))
	t.Cleanup(web.Close)
	s.proxy, err = faultproxy.Listen(strings.TrimPrefix(web.URL, "http://"))
	must(t, err)
	t.Cleanup(func() { must(t, s.proxy.Close()) })
	s.walStore = walStore{env: server.Env(), url: fmt.Sprintf("s3://%s/main?endpoint=http://%s&region=%s", s3server.Bucket, s.proxy.Addr(), s3server.Region)}
	return s
}

func (s *faultyStore) behave(m misbehaviour) { s.mode.Store(int32(m)) }

func (s *faultyStore) serve(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	mode := misbehaviour(s.mode.Load())
	if mode != none {
		s.broken.Add(1)
	}
	switch mode {
	case serverError:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case slowDown:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case resetHalfway:
		_, _ = r.Body.Read(make([]byte, 1<<10))
		panic(http.ErrAbortHandler)
	case cutAnswers:
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		body := answer.Body.Bytes()
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
		panic(http.ErrAbortHandler)
	case slow:
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	pass.ServeHTTP(w, r)
}

// metric returns the value of a metric of a node.
func metric(n *nodeproc.Node, name string) (float64, error) {
	all, err := n.Metrics()
	return all[name], err
}

// startNodeOn starts a node that archives into a store.
func startNodeOn(ctx context.Context, t *testing.T, primary *pgcluster.Cluster, s walStore, more string) *nodeproc.Node {
	t.Helper()
	return startNode(ctx, t, nodeproc.Options{Config: archivingNode(primary, archiveConfig(s.url, more)), Env: s.env})
}

// archiveSlot returns up to where the node's slot has let go of WAL.
func archiveSlot(ctx context.Context, t *testing.T, n *nodeproc.Node) protocol.LSN {
	t.Helper()
	out, code := walproxy(ctx, t, "slots", "list", "--json", "--http", strings.TrimPrefix(n.HTTP, "http://"))
	var slots []struct {
		Name       string `json:"name"`
		RestartLSN string `json:"restart_lsn"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &slots) != nil {
		t.Fatalf("slots list: exit %d\n%s", code, out)
	}
	for _, s := range slots {
		if s.Name == "archive" {
			lsn, err := protocol.ParseLSN(s.RestartLSN)
			must(t, err)
			return lsn
		}
	}
	t.Fatalf("no slot of the archive in %s", out)
	return 0
}

// TestStoreFaults (wal-g#1578) lets the store reset connections in mid-upload, answer with errors, cut its answers off, be slow and
// hang, under load, each of it at least once. Nothing is let go before it is stored, and in the end everything is. What push and get are doing
// when it happens succeeds as soon as it is over.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	ctx := setting(t, 5*patience)
	choice := random(t)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	s := startFaultyStore(ctx, t)
	node := startNodeOn(ctx, t, primary, s.walStore, "  timeout: 1s\n")
	from := write(ctx, t, primary, 1).Next(1 << 20)
	var lsn protocol.LSN
	kinds := choice.Perm(int(misbehaviours) + 1)
	for round := range rounds(len(kinds), 200) {
		what := misbehaviour(1 + kinds[round%len(kinds)])
		switch what {
		case misbehaviours:
			s.proxy.StallAll(true)
		case misbehaviours + 1:
			s.proxy.Cut()
		default:
			s.behave(what)
		}
		lsn = write(ctx, t, primary, 5000+choice.IntN(10000))
		if held := archiveSlot(ctx, t, node); held > s.direct.list(ctx, t).end(1) && held > from {
			t.Fatalf("the slot is at %s, the archive ends at %s", held, s.direct.list(ctx, t).end(1))
		}
		s.behave(none)
		s.proxy.StallAll(false)
	}
	lsn = max(lsn, write(ctx, t, primary, 5000))
	s.direct.await(ctx, t, 1, lsn.Floor(1<<20))
	if out, code := s.direct.run(ctx, t, "verify", "--against", primary.DataDir); code != 0 {
		t.Fatalf("archive verify: exit %d\n%s", code, out)
	}
	s.direct.sameSegments(ctx, t, primary, 1, from, min(from+5<<20, lsn))
	segment := filepath.Join(primary.WALDir(), protocol.SegmentName(1, from, 1<<20))
	want, err := os.ReadFile(segment)
	must(t, err)
	for what := none + 1; what < misbehaviours; what++ {
		s.meets(ctx, t, what, "push", segment)
		target := filepath.Join(t.TempDir(), "RECOVERYXLOG")
		s.meets(ctx, t, what, "get", "--read-ahead", "0", filepath.Base(segment), target)
		got, err := os.ReadFile(target)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("misbehaviour %d: archive get hands out other bytes", what)
		}
	}
}

// meets runs walproxy archive VERB, and ends a misbehaviour once a request has met it. It must succeed.
func (s *faultyStore) meets(ctx context.Context, t *testing.T, what misbehaviour, verb string, args ...string) {
	t.Helper()
	s.broken.Store(0)
	s.behave(what)
	done := make(chan error, 1) // of the one goroutine below
	go func() {
		done <- pgcluster.Until(ctx, func() (bool, error) { return s.broken.Load() > 0, nil })
		s.behave(none)
	}()
	out, code := s.run(ctx, t, verb, args...)
	if err := <-done; err != nil || code != 0 {
		t.Errorf("misbehaviour %d: archive %s: exit %d, %v\n%s", what, verb, code, err, out)
	}
}

// TestStoreHangs (wal-g#656, #777) lets the store accept connections and never answer. The stream goes on, so do keepalives, and
// there is an alarm; WAL that waits stays in the spool.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	standby := cloneOf(ctx, t, primary)
	s := startFaultyStore(ctx, t)
	node := startNodeOn(ctx, t, primary, s.walStore, "  timeout: 1s\n")
	must(t, standby.MakeStandby(node.Conninfo(), ""))
	must(t, standby.Start(ctx))
	s.direct.await(ctx, t, 1, write(ctx, t, primary, 10000).Floor(1<<20))
	pid, err := primary.Value(ctx, "SELECT pid FROM pg_stat_replication")
	must(t, err)
	s.proxy.StallAll(true)
	lsn := write(ctx, t, primary, 20000)
	must(t, standby.WaitReplayed(ctx, lsn))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		v, err := metric(node, "walproxy_archive_failing")
		lsn = write(ctx, t, primary, 100)
		return v == 1, err
	}))
	must(t, standby.WaitReplayed(ctx, lsn)) // longer than wal_sender_timeout has passed
	after, err := primary.Value(ctx, "SELECT pid FROM pg_stat_replication")
	must(t, err)
	if after != pid {
		t.Errorf("the stream from the primary was made anew: walsender %s, then %s", pid, after)
	}
	s.proxy.StallAll(false)
	s.direct.await(ctx, t, 1, lsn.Floor(1<<20))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		v, err := metric(node, "walproxy_archive_failing")
		return v == 0, err
	}))
}

// TestTwoNodesOnOnePrefix (wal-g#354, pgbackrest#37, barman#897): two nodes of one cluster archive the same WAL, and that is fine. Then
// two servers take the same timeline, and whoever comes second is refused.
func TestTwoNodesOnOnePrefix(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	twin := cloneOf(ctx, t, primary) // the same cluster, which writes other WAL later
	s := fileStore(t)
	a := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), smallWindows+archiveConfig(s.url, ""))})
	b := startNode(ctx, t, nodeproc.Options{Config: fastNode(primary.Conninfo(), smallWindows+archiveConfig(s.url, ""))})
	lsn := write(ctx, t, primary, 30000)
	s.await(ctx, t, 1, lsn.Floor(1<<20))
	for _, n := range []*nodeproc.Node{a, b} {
		must(t, pgcluster.Until(ctx, func() (bool, error) { return archiveSlot(ctx, t, n) >= lsn.Floor(1<<20), nil }))
		if v, err := metric(n, "walproxy_archive_refused"); err != nil || v != 0 {
			t.Errorf("refused is %v, %v", v, err)
		}
	}
	before, code := s.run(ctx, t, "verify", "--against", primary.DataDir)
	if code != 0 {
		t.Fatalf("archive verify: exit %d\n%s", code, before)
	}

	must(t, twin.Start(ctx))
	c := startNode(ctx, t, nodeproc.Options{Config: fastNode(twin.Conninfo(), smallWindows+archiveConfig(s.url, ""))})
	must(t, twin.Exec(ctx, "CREATE TABLE other AS SELECT generate_series(1, 50000) n"))
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		v, err := metric(c, "walproxy_archive_refused")
		return v == 1, err
	}))
	if !strings.Contains(c.Log(), "other WAL than the archive's at") {
		t.Errorf("the log says nothing of other WAL:\n%s", c.Log())
	}
	if out, code := s.run(ctx, t, "verify", "--against", primary.DataDir); code != 0 {
		t.Errorf("the archive has changed: exit %d\n%s", code, out)
	}
}

// smallWindows has nodes archive soon.
const smallWindows = "recompress:\n  codec: zstd\n  reset_distance: 1MiB\n"

// TestSecondClusterOnOnePrefix (plugin-barman-cloud#263): a node of another cluster stores nothing.
func TestSecondClusterOnOnePrefix(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	a := startArchiving(ctx, t, primary, "")
	a.await(ctx, t, 1, write(ctx, t, primary, 10000).Floor(1<<20))
	before := strings.Join(a.objects(ctx, t), " ")
	stranger := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	b := startNode(ctx, t, nodeproc.Options{Config: archivingNode(stranger, archiveConfig(a.url, "  tail: on\n"))})
	write(ctx, t, stranger, 10000)
	must(t, pgcluster.Until(ctx, func() (bool, error) {
		v, err := metric(b, "walproxy_archive_refused")
		return v == 1, err
	}))
	if after := strings.Join(a.objects(ctx, t), " "); after != before {
		t.Errorf("the archive holds\n%s, held\n%s", after, before)
	}
}

// TestDamagedBucket cuts an object off in a bucket, changes a bit of it, makes it longer, and deletes it.
func TestDamagedBucket(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	server, err := s3server.New(ctx)
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, NoFsync: true, Conf: fastRetry})
	s := walStore{url: server.URL("main"), env: server.Env()}
	first := write(ctx, t, primary, 30000).Floor(1<<20) - 3<<20
	for at := first; at < first+3<<20; at = at.Next(1 << 20) {
		if out, code := s.run(ctx, t, "push", filepath.Join(primary.WALDir(), protocol.SegmentName(1, at, 1<<20))); code != 0 {
			t.Fatalf("push: exit %d\n%s", code, out)
		}
	}
	victim := archive.Span{Timeline: 1, Start: first + 1<<20, End: first + 2<<20}
	path := server.Path("main/" + victim.Name())
	whole, err := os.ReadFile(path)
	must(t, err)
	for _, c := range []struct {
		what  string
		harm  func() error
		found bool // else archive get hands the segment out
	}{
		{"a bit", func() error { flipByte(t, path, int64(len(whole)/2)); return nil }, true},
		{"longer", func() error { return os.WriteFile(path, append(bytes.Clone(whole), 0), 0o600) }, false},
		{"cut off", func() error { return os.Truncate(path, int64(len(whole)/3)) }, true},
		{"empty", func() error { return os.Truncate(path, 0) }, true},
		{"deleted", func() error { return os.Remove(path) }, true},
	} {
		must(t, c.harm())
		if out, code := s.run(ctx, t, "verify"); code != 3 || !strings.Contains(out, victim.End.String()) {
			t.Errorf("%s: archive verify: exit %d\n%s", c.what, code, out)
		}
		target := filepath.Join(t.TempDir(), "segment")
		out, code := s.run(ctx, t, "get", protocol.SegmentName(1, victim.Start, 1<<20), target)
		if _, err := os.Stat(target); c.found && (code != 200 || !os.IsNotExist(err)) || !c.found && code != 0 {
			t.Errorf("%s: archive get: exit %d, %v\n%s", c.what, code, err, out)
		}
		if c.what != "deleted" {
			must(t, os.WriteFile(path, whole, 0o600))
		}
	}
}

// TestDamagedArchive (litestream#224) flips one bit in each part of an object, cuts it off, and deletes it. Each time archive verify
// names the WAL that is lost, and archive get says that it could not look; never does it hand out other bytes.
func TestDamagedArchive(t *testing.T) {
	t.Parallel()
	ctx := setting(t, patience)
	primary := startPrimary(ctx, t, pgcluster.Options{Major: 15, SegmentMiB: 1, Conf: fastRetry})
	s := fileStore(t)
	dir := strings.TrimPrefix(s.url, "file://")
	first := write(ctx, t, primary, 1).Floor(1 << 20)
	lsn := write(ctx, t, primary, 30000)
	for at := first; at.Next(1<<20) <= lsn; at = at.Next(1 << 20) {
		if out, code := s.run(ctx, t, "push", filepath.Join(primary.WALDir(), protocol.SegmentName(1, at, 1<<20))); code != 0 {
			t.Fatalf("push: exit %d\n%s", code, out)
		}
	}
	victim := archive.Span{Timeline: 1, Start: first + 1<<20, End: first + 2<<20}
	path := filepath.Join(dir, filepath.FromSlash(victim.Name()))
	whole, err := os.ReadFile(path)
	must(t, err)
	h, err := archive.DecodeHeader(whole)
	must(t, err)
	window := h.Windows[0].Offset
	parts := map[string]int64{
		"magic": 3, "header": 45, "raw checksum": 65, "index": 84, "header checksum": int64(h.HeadBytes()) - 2, "window header": window + 30,
		"frame header": window + 90, "payload": window + 5000, "window index": h.Bytes - 20, "last byte": h.Bytes - 1,
	}
	damage := map[string]func(){"cut off": func() { must(t, os.Truncate(path, h.Bytes/2)) }, "longer": func() {
		must(t, os.WriteFile(path, append(append([]byte(nil), whole...), 0), 0o600))
	}, "deleted": func() { must(t, os.Remove(path)) }}
	for part, offset := range parts {
		damage[part] = func() { flipByte(t, path, offset) }
	}
	for what, harm := range damage {
		harm()
		out, code := s.run(ctx, t, "verify", "--json")
		var v struct{ Findings []struct{ From, To string } }
		must(t, json.Unmarshal([]byte(out[:strings.LastIndex(out, "}")+1]), &v))
		if code != 3 || len(v.Findings) != 1 || v.Findings[0].To != victim.End.String() || what == "deleted" && v.Findings[0].From != victim.Start.String() {
			t.Errorf("%s: exit %d, %s", what, code, out)
		}
		name := protocol.SegmentName(1, victim.Start, 1<<20)
		target := filepath.Join(t.TempDir(), name)
		out, code = s.run(ctx, t, "get", name, target)
		if _, err := os.Stat(target); what != "longer" && (code != 200 || !os.IsNotExist(err)) {
			t.Errorf("%s: archive get: exit %d, %v\n%s", what, code, err, out)
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, whole, 0o600))
	}
	if out, code := s.run(ctx, t, "verify", "--against", primary.DataDir); code != 0 {
		t.Errorf("made whole again: exit %d\n%s", code, out)
	}
}
