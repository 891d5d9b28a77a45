package main

import (
	"fmt"
	"html"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth   = 760
	plotLabels  = 256 // where bars begin
	plotLongest = 350 // a bar as long as the largest rate
	plotHead    = 52
	plotLine    = 26
	plotGap     = 48 // before the first bar of a group
)

// plotStyle is readable on light and dark pages.
const plotStyle = `.ground{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.quiet{fill:#59636e}.other{fill:#8c959f}.ours{fill:#0969da}
text{font:14px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}.title{font-size:17px;font-weight:600}.head{font-weight:600}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.quiet{fill:#9198a1}.other{fill:#656c76}.ours{fill:#4493f8}}`

// svg is the plot of the main tables: requests per second of each gateway under
// the load of many tenants, and how much that is of bare Caddy's.
func (r *results) svg() string {
	var bars strings.Builder
	y := plotHead
	for i, g := range r.plan.groups {
		if !plotted(r.plan, g) {
			continue
		}
		y += plotGap
		fmt.Fprintf(&bars, `<text class="text head" x="24" y="%d">%s</text>`+"\n", y-plotLine/2, plain(g.title))
		longest := r.fastest(i)
		for j, c := range g.cells {
			bars.WriteString(bar(line{c, r.samples[i][j], r.samples[i][0], nil}, y, longest))
			y += plotLine
		}
	}
	height := y + 24
	heading := "Requests per second, " + r.plan.groups[0].load.String()
	if len(r.void()) > 0 {
		heading = "VOID: " + heading
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", plotWidth, height, plotWidth, height)
	out.WriteString("<title>Requests per second of a gateway, with and without rate limits</title>\n<style>\n" + plotStyle + "\n</style>\n")
	fmt.Fprintf(&out, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", plotWidth-1, height-1)
	fmt.Fprintf(&out, `<text class="text title" x="24" y="34">%s</text>`+"\n", plain(heading))
	fmt.Fprintf(&out, `<text class="quiet" x="24" y="54">%d cores for wrk, the gateway, Redis and the service; in brackets: part of bare Caddy's</text>`+"\n", r.about.cores)
	out.WriteString(bars.String() + "</svg>\n")
	return out.String()
}

// plotted are the main groups: those with the load of the first.
func plotted(p plan, g group) bool {
	return g.load == p.groups[0].load && g.paced == nil && g.title != titleFlood && g.title != titleEqual
}

// fastest is the largest median rate of a group.
func (r *results) fastest(group int) float64 {
	fastest := 1.0
	for _, samples := range r.samples[group] {
		fastest = max(fastest, median(of(samples, sample.rate)))
	}
	return fastest
}

func bar(l line, y int, longest float64) string {
	rate := l.median(sample.rate)
	class := "other"
	if l.cell.site.build == buildOurs {
		class = "ours"
	}
	length := rate / longest * plotLongest
	return fmt.Sprintf(`<text class="text" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLabels-10, y+14, plain(l.cell.name)) +
		fmt.Sprintf(`<rect class="%s" x="%d" y="%d" width="%.1f" height="18" rx="2"/>`+"\n", class, plotLabels, y, length) +
		fmt.Sprintf(`<text class="text" x="%.1f" y="%d">%s (%.2f)</text>`+"\n", plotLabels+length+8, y+14, grouped(int64(rate)), paired(l.samples, l.base))
}

// plain is a text of a page without its markup, for a picture.
func plain(text string) string { return html.EscapeString(strings.ReplaceAll(text, "`", "")) }
