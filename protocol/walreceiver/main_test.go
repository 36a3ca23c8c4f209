package walreceiver_test

import (
	"testing"

	"go.uber.org/goleak"

	"walproxy/integration/pgcluster"
)

// templates are what the tests' servers are made of.
var templates *pgcluster.Templates

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgcluster.WithTemplates(m, &templates)) }
