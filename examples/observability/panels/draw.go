package main

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// The picture's measures, in pixels. A column is one of the dashboard's 24.
const (
	column    = 50
	row       = 25
	margin    = 10
	titleRoom = 30
	axisRoom  = 46
	footRoom  = 52
	lineRoom  = 15 // of the legend, which has two lines
	colors    = 8
)

const style = `<style>
.ground{fill:#ffffff}.panel{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.quiet{fill:#59636e}.axis{stroke:#d8dee4}
text{font:11px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}.title{font-size:13px;font-weight:600}.number{font-size:30px;font-weight:600}
.orange{fill:#9a6700}.red{fill:#cf222e}
polyline{fill:none;stroke-width:1.6}
.s0{stroke:#0969da}.s1{stroke:#bf3989}.s2{stroke:#1a7f37}.s3{stroke:#9a6700}.s4{stroke:#8250df}.s5{stroke:#cf222e}.s6{stroke:#0a7d91}.s7{stroke:#57606a}
@media (prefers-color-scheme:dark){.orange{fill:#d29922}.red{fill:#f85149}.ground,.panel{fill:#0d1117}.panel{stroke:#3d444d}.text{fill:#f0f6fc}.quiet{fill:#9198a1}.axis{stroke:#2a313a}
.s0{stroke:#4493f8}.s1{stroke:#f778ba}.s2{stroke:#3fb950}.s3{stroke:#d29922}.s4{stroke:#ab7df8}.s5{stroke:#f85149}.s6{stroke:#39c5cf}.s7{stroke:#9198a1}}
</style>
`

// plot is a panel and what Prometheus answered.
type plot struct {
	panel *panel
	lines []line
}

// draw returns all panels at their places.
func draw(plots []plot, asked period) string {
	width, height := 24*column+2*margin, 0
	for _, p := range plots {
		height = max(height, (p.panel.GridPos.Y+p.panel.GridPos.H)*row+2*margin)
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	out.WriteString("<title>The dashboard's panels</title>\n" + style)
	fmt.Fprintf(&out, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, height)
	for _, p := range plots {
		p.draw(&out, asked)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// frame is where a panel's lines are drawn, and what is at its top.
type frame struct {
	x, y, w, h int
	top        float64
	asked      period
}

func (p *plot) draw(out *strings.Builder, asked period) {
	pos := p.panel.GridPos
	x, y, w, h := margin+pos.X*column+3, margin+pos.Y*row+3, pos.W*column-6, pos.H*row-6
	fmt.Fprintf(out, `<rect class="panel" x="%d" y="%d" width="%d" height="%d" rx="4"/>`+"\n", x, y, w, h)
	write(out, label{x + 10, y + 19, "start", "text title", p.panel.Title})
	if p.panel.Type == "stat" {
		p.number(out, grid{x, y, w, h})
		return
	}
	f := frame{x + axisRoom, y + titleRoom, w - axisRoom - 12, h - titleRoom - footRoom, p.top(), asked}
	f.axes(out, p.panel.FieldConfig.Defaults.Unit)
	if len(p.lines) == 0 {
		write(out, label{f.x + f.w/2, f.y + f.h/2, "middle", "quiet", "nothing"})
	}
	for i, l := range p.lines {
		f.line(out, l, p.color(i))
	}
	p.legend(out, grid{x + 10, y + h - 24, w - 20, 2})
}

// number draws a panel of one number: the last.
func (p *plot) number(out *strings.Builder, room grid) {
	if len(p.lines) == 0 || len(p.lines[0].points) == 0 {
		write(out, label{room.X + 10, room.Y + 64, "start", "quiet number", "none"})
		return
	}
	points := p.lines[0].points
	last, class := points[len(points)-1].value, "text"
	for _, step := range p.panel.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value != nil && last >= *step.Value {
			class = step.Color
		}
	}
	write(out, label{room.X + 10, room.Y + 64, "start", class + " number", value(math.Round(last*1000)/1000, p.panel.FieldConfig.Defaults.Unit)})
}

// color is the color of a line, as attributes.
func (p *plot) color(i int) string {
	if fixed := p.panel.fixed(p.lines[i].name); fixed != "" {
		return fmt.Sprintf(`stroke="%s"`, html.EscapeString(fixed))
	}
	return fmt.Sprintf(`class="s%d"`, i%colors)
}

// legend names the lines, in room.H lines of text. What does not fit is left out.
func (p *plot) legend(out *strings.Builder, room grid) {
	x, y, rows := room.X, room.Y, 1
	for i, l := range p.lines {
		width := 30 + 13*len(l.name)/2
		if x+width > room.X+room.W && x > room.X {
			if rows++; rows > room.H {
				write(out, label{x, y + 4, "start", "quiet", "…"})
				return
			}
			x, y = room.X, y+lineRoom
		}
		fmt.Fprintf(out, `<line %s x1="%d" y1="%d" x2="%d" y2="%d" stroke-width="3"/>`+"\n", p.color(i), x, y, x+12, y)
		write(out, label{x + 16, y + 4, "start", "quiet", l.name})
		x += width
	}
}

// top returns the largest value that is drawn, rounded up to one that reads well.
func (p *plot) top() float64 {
	if most := p.panel.FieldConfig.Defaults.Max; most != nil {
		return *most
	}
	highest := 0.0
	for _, l := range p.lines {
		for _, at := range l.points {
			highest = max(highest, at.value)
		}
	}
	if highest == 0 {
		return 1
	}
	step := 1e-9
	for {
		for _, factor := range []float64{1, 2, 2.5, 5} {
			if step*factor >= highest {
				return step * factor
			}
		}
		step *= 10
	}
}

// axes draws the lines of a few values, and the minutes below.
func (f *frame) axes(out *strings.Builder, unit string) {
	const parts = 2
	for i := range parts + 1 {
		y := f.y + f.h - i*f.h/parts
		fmt.Fprintf(out, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", f.x, y, f.x+f.w, y)
		write(out, label{f.x - 5, y + 4, "end", "quiet", value(f.top*float64(i)/parts, unit)})
	}
	for minute := 0; minute*60 <= int(f.asked.seconds()); minute++ {
		x := f.x + int(float64(f.w*minute*60)/f.asked.seconds())
		write(out, label{x, f.y + f.h + 13, "middle", "quiet", strconv.Itoa(minute) + "m"})
	}
}

// line draws one series. A gap in the data is a gap in the line.
func (f *frame) line(out *strings.Builder, l line, color string) {
	gap := 2.5 * max(f.asked.seconds()/steps, 1)
	for i := 0; i < len(l.points); {
		var path strings.Builder
		last := l.points[i].at
		for ; i < len(l.points) && l.points[i].at-last <= gap; i++ {
			last = l.points[i].at
			x := float64(f.x) + (last-float64(f.asked.begin.Unix()))/f.asked.seconds()*float64(f.w)
			y := float64(f.y+f.h) - min(l.points[i].value/f.top, 1)*float64(f.h)
			fmt.Fprintf(&path, "%.1f,%.1f ", x, y)
		}
		fmt.Fprintf(out, `<polyline %s points="%s"/>`+"\n", color, strings.TrimSpace(path.String()))
	}
}

// value writes a number with its unit.
func value(n float64, unit string) string {
	switch {
	case unit == "percentunit" && n > 0 && n < 0.1:
		return fmt.Sprintf("%.1f %%", n*100)
	case unit == "percentunit":
		return fmt.Sprintf("%.0f %%", n*100)
	case unit == "s" && n != 0 && n < 1:
		return fmt.Sprintf("%.4g ms", n*1000)
	case unit == "s":
		return fmt.Sprintf("%.4g s", n)
	default:
		return fmt.Sprintf("%.4g", n)
	}
}

// label is a text and its place.
type label struct {
	x, y    int
	anchor  string
	classes string
	text    string
}

func write(out *strings.Builder, l label) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", l.classes, l.x, l.y, l.anchor, html.EscapeString(l.text))
}
