package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chartName is the file in the directory of charts.
const chartName = "engine-size-speed.svg"

var (
	oursColor  = color.RGBA{R: 0x1f, G: 0x5f, B: 0xb4, A: 0xff}
	peersColor = color.RGBA{R: 0xc0, G: 0x5a, B: 0x1a, A: 0xff}
	gridColor  = color.RGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
)

// chart draws stored bytes against encode speed, geometric means over all workloads.
func (b *bench) chart(columns []*column, raw []float64) error {
	p := plot.New()
	p.Title.Text = "Stored size and encode speed, geometric means over all workloads"
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "encode MB/s on one processor (further right is faster)"
	p.Y.Label.Text = "stored, % of the WAL (further down is smaller)"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = decadeTicks{}, decadeTicks{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	for _, group := range []struct {
		name  string
		ours  bool
		color color.Color
		shape draw.GlyphDrawer
	}{{"walproxy", true, oursColor, draw.CircleGlyph{}}, {"general compressors", false, peersColor, draw.SquareGlyph{}}} {
		points := points(columns, raw, group.ours)
		if len(points.XYs) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return fmt.Errorf("draw chart: %w", err)
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: group.color, Radius: vg.Points(3.5), Shape: group.shape}
		labels, err := plotter.NewLabels(points)
		if err != nil {
			return fmt.Errorf("draw chart: %w", err)
		}
		labels.Offset = vg.Point{X: vg.Points(6), Y: vg.Points(-3)}
		for i := range labels.TextStyle {
			labels.TextStyle[i].Color = group.color
		}
		p.Add(scatter, labels)
		p.Legend.Add(group.name, scatter)
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	room(p)
	if err := os.MkdirAll(b.charts, 0o755); err != nil {
		return err
	}
	if err := p.Save(18*vg.Centimeter, 12*vg.Centimeter, filepath.Join(b.charts, chartName)); err != nil {
		return fmt.Errorf("save chart: %w", err)
	}
	b.report.Line("![Stored size against encode speed](%s)\n", filepath.ToSlash(filepath.Join(b.charts, chartName)))
	return nil
}

// points returns the columns of one group that have figures.
func points(columns []*column, raw []float64, ours bool) plotter.XYLabels {
	var out plotter.XYLabels
	for _, c := range columns {
		share := make([]float64, len(raw))
		for i := range raw {
			share[i] = 100 * c.bytes[i] / raw[i]
		}
		if x, y := geomean(c.encode), geomean(share); c.ours == ours && x > 0 && y > 0 {
			out.XYs = append(out.XYs, plotter.XY{X: x, Y: y})
			out.Labels = append(out.Labels, c.name)
		}
	}
	return out
}

// room widens the axes, so that labels to the right of a point lie within.
func room(p *plot.Plot) {
	p.X.Min, p.X.Max = p.X.Min/1.3, p.X.Max*3
	p.Y.Min, p.Y.Max = p.Y.Min/1.3, p.Y.Max*1.5
}

// decadeTicks marks 1, 2 and 5 times every power of ten.
type decadeTicks struct{}

func (decadeTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for exponent := math.Floor(math.Log10(low)); exponent <= math.Log10(high); exponent++ {
		for _, factor := range []float64{1, 2, 5} {
			if v := factor * math.Pow(10, exponent); v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
			}
		}
	}
	return ticks
}
