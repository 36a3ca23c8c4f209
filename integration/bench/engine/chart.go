package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// chartName is the file in the directory of charts.
const chartName = "engine-size-speed.svg"

const (
	chartWidth  = 18 * vg.Centimeter
	chartHeight = 11 * vg.Centimeter
)

// group is the dots of one color.
type group struct {
	name  string
	ours  bool
	color color.Color
	shape draw.GlyphDrawer
}

var (
	gridColor = color.RGBA{R: 0xe4, G: 0xe4, B: 0xe4, A: 0xff}
	groups    = []group{
		{"walproxy", true, color.RGBA{R: 0x1f, G: 0x5f, B: 0xb4, A: 0xff}, draw.CircleGlyph{}},
		{"general compressors", false, color.RGBA{R: 0xc0, G: 0x5a, B: 0x1a, A: 0xff}, draw.BoxGlyph{}},
	}
)

// dot is a column on the chart. x and y are decimal logarithms: the library centers axis labels wrongly on its logarithmic axes.
type dot struct {
	name  string
	x, y  float64 // MB/s, percent
	group *group
}

// chart draws stored bytes against encode speed, geometric means over all workloads.
func (b *bench) chart(columns []*column, raw []float64) error {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.BackgroundColor = color.White
	p.Title.Text = "Stored size and encode speed, geometric means over all workloads"
	p.Title.Padding = vg.Points(10)
	p.X.Label.Text = "encode MB/s on one processor (further right is faster)"
	p.Y.Label.Text = "stored, % of the WAL (further down is smaller)"
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	dots := dots(columns, raw)
	for i := range groups {
		if err := addDots(p, &groups[i], dots); err != nil {
			return fmt.Errorf("draw chart: %w", err)
		}
	}
	// Labels need room that the library does not know of.
	p.X.Min, p.X.Max = p.X.Min-0.1, p.X.Max+0.35
	p.Y.Min, p.Y.Max = p.Y.Min-0.15, p.Y.Max+0.15
	if err := addLabels(p, dots); err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	p.Legend.Top, p.Legend.Left, p.Legend.YPosition = true, true, draw.PosCenter
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), vg.Points(-4)
	return b.saveChart(p)
}

// saveChart writes the chart, with fonts that take the same room where the first is not installed, and links to it.
func (b *bench) saveChart(p *plot.Plot) error {
	writer, err := p.WriterTo(chartWidth, chartHeight, "svg")
	if err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	var svg bytes.Buffer
	if _, err := writer.WriteTo(&svg); err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	if err := os.MkdirAll(b.charts, 0o755); err != nil {
		return err
	}
	file := filepath.Join(b.charts, chartName)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	link, err := filepath.Rel(filepath.Dir(b.out), file)
	if err != nil {
		return err
	}
	b.report.Line("![Stored size against encode speed](%s)\n", filepath.ToSlash(link))
	return nil
}

// dots returns the columns that have figures.
func dots(columns []*column, raw []float64) []dot {
	var all []dot
	for _, c := range columns {
		share := make([]float64, len(raw))
		for i := range raw {
			share[i] = 100 * c.bytes[i] / raw[i]
		}
		x, y := geomean(c.encode), geomean(share)
		for i := range groups {
			if g := &groups[i]; g.ours == c.ours && x > 0 && y > 0 {
				all = append(all, dot{name: c.name, x: math.Log10(x), y: math.Log10(y), group: g})
			}
		}
	}
	return all
}

func addDots(p *plot.Plot, g *group, dots []dot) error {
	var at plotter.XYs
	for i := range dots {
		if dots[i].group == g {
			at = append(at, plotter.XY{X: dots[i].x, Y: dots[i].y})
		}
	}
	if len(at) == 0 {
		return nil
	}
	scatter, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	scatter.GlyphStyle = draw.GlyphStyle{Color: g.color, Radius: vg.Points(3.5), Shape: g.shape}
	p.Add(scatter)
	p.Legend.Add(g.name, scatter)
	return nil
}

// logTicks marks 1, 2 and 5 times every power of ten on an axis of logarithms.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for exponent := math.Floor(low); exponent <= high; exponent++ {
		for _, factor := range []float64{1, 2, 5} {
			if at := exponent + math.Log10(factor); at >= low && at <= high {
				ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%.6g", factor*math.Pow(10, exponent))})
			}
		}
	}
	return ticks
}
