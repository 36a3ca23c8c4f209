package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"walproxy/archive/stores"
	"walproxy/cmd/walproxy/internal/config"
)

// Open returns the source that the user calls name: a libpq connection string or URI of a server or node, the data directory of
// a node or server, a directory with WAL segments. Nothing is read yet. The caller closes it.
func Open(name string) (Source, error) {
	scheme, _, _ := strings.Cut(name, "://")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		return NewServer(name, config.Conninfo(name).String())
	case scheme == "file" || scheme == "s3":
		store, err := stores.Open(name, stores.Options{})
		if err != nil {
			return nil, err
		}
		return NewStore(store), nil
	case isDir(filepath.Join(name, "spool")):
		return &spoolDir{dir: name}, nil
	case isDir(name):
		return newWALDir(name), nil
	case strings.Contains(name, "="):
		return NewServer(name, config.Conninfo(name).String())
	}
	if _, err := os.Stat(name); err != nil {
		return nil, fmt.Errorf("%w; want a connection string, a data directory, a directory with WAL, or the URL of an archive", err)
	}
	return nil, fmt.Errorf("%s is neither a directory nor a connection string", name)
}
