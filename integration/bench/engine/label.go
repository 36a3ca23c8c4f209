package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	labelPoints = 9   // font size
	letterWidth = 4.7 // of a letter on average, in points
	dotRadius   = 5   // that labels keep away from
)

// box is a rectangle in points.
type box struct{ left, bottom, right, top float64 }

func (b box) overlaps(o box) bool {
	return b.left < o.right && o.left < b.right && b.bottom < o.top && o.bottom < b.top
}

// addLabels puts a name beside every dot, where it covers neither a dot nor another name if there is such a place.
func addLabels(p *plot.Plot, dots []dot) error {
	// How large the area of the data is about, in points: axes and title take the rest.
	width, height := float64(chartWidth)-60, float64(chartHeight)-75
	place := func(d *dot) (x, y float64) {
		return (d.x - p.X.Min) / (p.X.Max - p.X.Min) * width, (d.y - p.Y.Min) / (p.Y.Max - p.Y.Min) * height
	}
	var taken []box
	for i := range dots {
		x, y := place(&dots[i])
		taken = append(taken, box{x - dotRadius, y - dotRadius, x + dotRadius, y + dotRadius})
	}
	for i := range dots {
		d := &dots[i]
		x, y := place(d)
		offset, covered := choose(x, y, float64(len(d.name))*letterWidth, taken)
		taken = append(taken, covered)
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: d.x, Y: d.y}}, Labels: []string{d.name}})
		if err != nil {
			return err
		}
		labels.Offset = offset
		labels.TextStyle[0].Color, labels.TextStyle[0].Font.Size = d.group.color, labelPoints
		p.Add(boxless{labels})
	}
	return nil
}

// choose returns where a text of that width goes that belongs to the dot at x, y, and what it covers.
func choose(x, y, width float64, taken []box) (vg.Point, box) {
	const near, above, below, beside = 6, 4, -12, -3
	places := []vg.Point{
		{X: near, Y: beside}, {X: near, Y: above}, {X: near, Y: below},
		{X: vg.Length(-width - near), Y: beside}, {X: vg.Length(-width - near), Y: above}, {X: vg.Length(-width - near), Y: below},
		{X: vg.Length(-width / 2), Y: 2 * above}, {X: vg.Length(-width / 2), Y: below - above},
	}
	covers := func(at vg.Point) box {
		left, bottom := x+float64(at.X), y+float64(at.Y)
		return box{left, bottom, left + width, bottom + labelPoints}
	}
	for _, at := range places {
		b, free := covers(at), true
		for _, other := range taken {
			free = free && !b.overlaps(other)
		}
		if free && b.left >= 0 {
			return at, b
		}
	}
	return places[0], covers(places[0])
}

// boxless are labels that claim no room: the library would shrink the chart for them, on all sides.
type boxless struct{ labels *plotter.Labels }

func (b boxless) Plot(c draw.Canvas, p *plot.Plot) { b.labels.Plot(c, p) }
