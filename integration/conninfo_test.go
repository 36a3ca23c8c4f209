package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"walproxy/integration/pgcluster"
	"walproxy/integration/tlstest"
	"walproxy/protocol/walreceiver"
)

// upstreamConninfo logs in to a server in the ways that a conninfo can ask for, as a node does.
func upstreamConninfo(t *testing.T, d *door) {
	if !slices.Contains(where(13, 18), d.server.Major) {
		return
	}
	ctx, dir := t.Context(), t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	closed, err := pgcluster.FreePort()
	must(t, err)
	other, err := d.ca.Client("somebody")
	must(t, err)
	tcp, port := fmt.Sprintf("host=127.0.0.1 port=%d ", d.server.Port), d.server.Port
	verified := fmt.Sprintf("host=localhost hostaddr=127.0.0.1 port=%d sslmode=verify-full sslrootcert=%s ", port, d.ca.File)
	passfile := write("pgpass", fmt.Sprintf("127.0.0.1:%d:*:*:wrong\n*:%d:replication:scram:secret\n", closed, port))
	services := write("services", fmt.Sprintf("[up]\nhost=127.0.0.1\nport=%d\nuser=scram\npassfile=%s\n", port, passfile))
	for conninfo, want := range map[string]string{
		tcp + "user=trusted":                                        "",
		tcp + "user=scram password=secret":                          "",
		tcp + "user=md5 password=secret":                            "",
		tcp + "user=md5scram password=secret":                       "",
		tcp + "user=password password=secret sslmode=disable":       "",
		tcp + "user=scram password=wrong":                           "SQLSTATE 28P01",
		tcp + "user=scram passfile=" + passfile:                     "",
		"service=up servicefile=" + services:                        "",
		fmt.Sprintf("postgresql://scram:secret@127.0.0.1:%d", port): "",
		fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=scram passfile=%s", closed, port, passfile):                         "",
		fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=scram password=secret load_balance_hosts=random", closed, port):     "",
		tcp + "user=scram password=secret keepalives_idle=7 tcp_user_timeout=5000 connect_timeout=5":                              "",
		verified + "user=scram password=secret channel_binding=require":                                                           "",
		verified + "user=scram password=secret require_auth=scram-sha-256 ssl_min_protocol_version=TLSv1.3":                       "",
		verified + "user=scram password=secret require_auth=md5":                                                                  `requirement "md5" failed`,
		tcp + "user=scram password=secret channel_binding=require sslmode=disable":                                                "channel binding",
		tcp + "user=trusted channel_binding=require sslmode=require":                                                              "channel binding",
		verified + "user=cert sslcert=" + d.client.Cert + " sslkey=" + d.client.Key:                                               "",
		verified + "user=cert sslcert=" + other.Cert + " sslkey=" + other.Key:                                                     "SQLSTATE 28000",
		fmt.Sprintf("host=127.0.0.2 hostaddr=127.0.0.1 port=%d user=trusted sslmode=verify-full sslrootcert=%s", port, d.ca.File): "127.0.0.2",
		fmt.Sprintf("host=%s port=%d user=trusted requirepeer=postgres", d.server.SocketDir, port):                                "",
		fmt.Sprintf("host=%s port=%d user=trusted requirepeer=daemon", d.server.SocketDir, port):                                  `requirepeer is "daemon"`,
		verified + "user=trusted sslnegotiation=direct":                                                                           map[bool]string{false: "connect to upstream"}[d.server.Major >= 17],
	} {
		c, err := walreceiver.Session{Conninfo: conninfo, Database: "replication", Parameters: map[string]string{"replication": "true"}, Timeout: 20 * time.Second}.Dial(ctx)
		if err == nil {
			must(t, c.Close())
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conninfo, err, want)
		}
	}
	stranger, err := tlstest.NewCA(dir, "stranger")
	must(t, err)
	r, err := walreceiver.New(walreceiver.Options{Conninfo: verified + "user=trusted sslrootcert=" + stranger.File})
	must(t, err)
	if _, err := r.Dial(ctx, nil, 0, "test"); err == nil || !strings.Contains(err.Error(), "check sslrootcert") || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Errorf("a certificate of a stranger: %v", err)
	}
}

// libraries logs in to a server and to its node by what libpq of 14 and newer can ask for: with the first version that knows it and the
// newest one.
func libraries(t *testing.T, d *door) {
	if !slices.Contains(where(18), d.server.Major) {
		return
	}
	const scram, cert = "user=scram password=secret ", "user=cert sslcert=%[1]s sslkey=%[2]s "
	for conninfo, since := range map[string]int{
		scram + "channel_binding=require": 14, scram + "target_session_attrs=primary": 14,
		scram + "require_auth=scram-sha-256": 16, scram + "require_auth=!scram-sha-256": 16, scram + "require_auth=none": 16, "user=trusted require_auth=none": 16,
		cert + "sslcertmode=require": 16, scram + "sslcertmode=require": 16, "user=md5 password=secret require_auth=md5 channel_binding=disable": 16,
		scram + "sslnegotiation=direct channel_binding=require": 17, "user=trusted sslnegotiation=direct": 17,
		scram + "min_protocol_version=3.2": 18, scram + "max_protocol_version=latest": 18,
	} {
		if strings.HasPrefix(conninfo, cert) {
			conninfo = fmt.Sprintf(conninfo, d.client.Cert, d.client.Key)
		}
		for _, libpq := range slices.Compact([]int{since, pgcluster.Newest}) {
			run := func(port int) string {
				out := psqlWith(t.Context(), t, libpq, fmt.Sprintf("host=localhost hostaddr=127.0.0.1 port=%d sslmode=verify-full sslrootcert=%s replication=true %s", port, d.ca.File, conninfo), "SHOW wal_block_size")
				return strings.ReplaceAll(out, fmt.Sprint(port), "PORT")
			}
			direct, through := run(d.server.Port), run(d.node.Options.Port)
			if direct != through {
				t.Errorf("libpq %d, %s: the server lets it have %q, the node %q", libpq, conninfo, direct, through)
			}
		}
	}
}

// limits opens connections until one is refused: as many as max_wal_senders on a server, listen.max_connections on a node.
func limits(t *testing.T, d *door) {
	if !slices.Contains(where(13, 18), d.server.Major) {
		return
	}
	refused := func(through bool) string {
		for range 2000 {
			c := d.dial(t, through, false)
			defer c.Close()
			must(t, as(c, "trusted"))
			if answer := strings.Join(c.Log, ", "); !strings.Contains(answer, "Z") {
				return regexp.MustCompile(`currently \d+`).ReplaceAllString(answer, "currently N")
			}
		}
		return "no limit"
	}
	direct, through := refused(false), refused(true)
	if direct != through || !strings.Contains(direct, "53300") {
		t.Errorf("one too many: the server says %s, the node %s", direct, through)
	}
}
