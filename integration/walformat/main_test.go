package walformat

import (
	"os"
	"testing"

	"walproxy/integration/pgcluster"
)

// templates are what the tests' servers are made of.
var templates *pgcluster.Templates

func TestMain(m *testing.M) { os.Exit(pgcluster.WithTemplates(m, &templates).Run()) }
