package walreceiver

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestWithDatabase: whatever the name of a database is, the conninfo asks for it, and nothing else of it changes.
func TestWithDatabase(t *testing.T) {
	for _, conninfo := range []string{
		"host=h port=7 user=u dbname=other", "host=h port=7 user=u", "postgres://u@h:7/other", "postgres://u@h:7/other?connect_timeout=5", "postgresql://u@h:7",
	} {
		for _, name := range []string{"replication", "db", "", "a b", `it's "\quoted"`, "x=y user=z", "ä/ö?&#%41"} {
			config, err := pgconn.ParseConfig(withDatabase(conninfo, name))
			if err != nil {
				t.Fatalf("%s, database %q: %v", conninfo, name, err)
			}
			if config.Host != "h" || config.Port != 7 || config.User != "u" || name != "" && config.Database != name {
				t.Errorf("%s, database %q: %s@%s:%d/%s", conninfo, name, config.User, config.Host, config.Port, config.Database)
			}
		}
	}
}
