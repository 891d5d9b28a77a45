package main

import (
	"fmt"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth = 760
	labelEnd  = 190 // where labels end and bars begin
	barWidth  = 440 // of 100 %
	barHeight = 16
	rowHeight = 56
	headRoom  = 86
)

// style is that of the plot: on a ground of its own, light or dark as the reader's.
const style = `<style>
.ground{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.quiet{fill:#59636e}.axis{stroke:#d0d7de}
.before{fill:#9a6700}.after{fill:#0969da}text{font:14px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}.title{font-size:17px;font-weight:600}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.quiet{fill:#9198a1}.axis{stroke:#3d444d}
.before{fill:#d29922}.after{fill:#4493f8}}
</style>
`

// svg returns the plot: for each class the part of its requests that was served,
// without limits and with them.
func (r *report) svg() string {
	var out strings.Builder
	height := headRoom + classes*rowHeight + 34
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", plotWidth, height, plotWidth, height)
	out.WriteString("<title>Requests served, of those sent, without limits and with them</title>\n" + style)
	fmt.Fprintf(&out, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", plotWidth-1, height-1)
	text(&out, label{24, 34, "start", "text title", "Requests served, of those sent"})
	fmt.Fprintf(&out, `<rect class="before" x="24" y="51" width="12" height="12" rx="2"/><rect class="after" x="150" y="51" width="12" height="12" rx="2"/>`+"\n")
	text(&out, label{42, 62, "start", "quiet", "without limits"})
	text(&out, label{168, 62, "start", "quiet", "with limits"})
	axis(&out, height-34)
	for i := range classes {
		y := headRoom + i*rowHeight
		before, after := &r.before.counts[i], &r.after.counts[i]
		text(&out, label{labelEnd - 12, y + 25, "end", "text", class(i).String()})
		bar(&out, "before", y, before)
		bar(&out, "after", y+barHeight+3, after)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// axis draws a line at each quarter, down to bottom.
func axis(out *strings.Builder, bottom int) {
	for percent := 0; percent <= 100; percent += 25 {
		x := labelEnd + percent*barWidth/100
		fmt.Fprintf(out, `<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", x, headRoom-6, x, bottom)
		text(out, label{x, bottom + 18, "middle", "quiet", fmt.Sprintf("%d %%", percent)})
	}
}

func bar(out *strings.Builder, class string, y int, n *counts) {
	width := n.percent() * barWidth / 100
	fmt.Fprintf(out, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`+"\n", class, labelEnd, y, max(width, 1), barHeight)
	text(out, label{labelEnd + int(width) + 6, y + barHeight - 3, "start", "text", fmt.Sprintf("%.0f %%", n.percent())})
}

// label is a text and its place.
type label struct {
	x, y    int
	anchor  string
	classes string
	text    string
}

func text(out *strings.Builder, l label) {
	fmt.Fprintf(out, `<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", l.classes, l.x, l.y, l.anchor, l.text)
}
