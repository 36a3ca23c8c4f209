package nodeproc

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics returns every counter and gauge of the node whose name begins with walproxy_, and of each histogram NAME_count and
// NAME_sum; the series of a family are added up.
func (n *Node) Metrics() (map[string]float64, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(n.HTTP + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", n.HTTP, err)
	}
	values := make(map[string]float64)
	for name, family := range families {
		if !strings.HasPrefix(name, "walproxy_") {
			continue
		}
		for _, m := range family.Metric {
			if h := m.GetHistogram(); h != nil {
				values[name+"_count"] += float64(h.GetSampleCount())
				values[name+"_sum"] += h.GetSampleSum()
				continue
			}
			values[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values, nil
}
