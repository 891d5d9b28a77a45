package regions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scenario is one plot: what is asked in each region at each second, and what
// happens to the regions.
type scenario struct {
	file, title string
	regions     []string
	minutes     int
	demand      func(region string, second int) float64 // requests a second
	happens     map[int]func(w *world)                  // by second
	marks       map[int]string                          // by second
}

// plotLimit is the limit of the scenarios, in requests a second.
const plotLimit = 100

func scenarios() []scenario {
	add := func(region string) func(*world) {
		return func(w *world) { w.add(region); w.add(region) }
	}
	cut := func(region string, cut bool) func(*world) {
		return func(w *world) { w.cut[region] = cut }
	}
	// between goes from one value to another within two minutes.
	between := func(from, to float64, start, second int) float64 {
		part := min(max(float64(second-start)/120, 0), 1)
		return from + (to-from)*part
	}
	return []scenario{
		{
			file: "regions-two.svg", title: "Two regions, 70 % of the demand in one, then in the other", regions: []string{"eu", "us"}, minutes: 40,
			demand: func(region string, second int) float64 {
				if region == "eu" {
					return between(91, 39, 1200, second)
				}
				return between(39, 91, 1200, second)
			},
			happens: map[int]func(*world){0: add("eu"), 1: add("us")},
			marks:   map[int]string{1200: "the demand moves"},
		},
		{
			file: "regions-cut.svg", title: "Two regions, one cut off from PostgreSQL", regions: []string{"eu", "us"}, minutes: 50,
			demand:  func(region string, _ int) float64 { return map[string]float64{"eu": 91, "us": 39}[region] },
			happens: map[int]func(*world){0: add("eu"), 1: add("us"), 1200: cut("us", true), 2100: cut("us", false)},
			marks:   map[int]string{1200: "us is cut off", 2100: "and back"},
		},
		{
			file: "regions-three.svg", title: "Three regions, one of which joins, and demand that moves", regions: []string{"eu", "us", "ap"}, minutes: 50,
			demand: func(region string, second int) float64 {
				switch region {
				case "eu":
					return between(80, 30, 1800, second)
				case "us":
					return 40
				default:
					if second < 900 {
						return 0
					}
					return between(20, 70, 1800, second)
				}
			},
			happens: map[int]func(*world){0: add("eu"), 1: add("us"), 900: add("ap")},
			marks:   map[int]string{900: "ap joins", 1800: "the demand moves"},
		},
	}
}

// line is what one region did, second by second.
type line struct {
	demand, fixed, admitted, share []float64
}

// played runs a scenario with the default times.
func (s *scenario) played(t testing.TB) (map[string]*line, Share) {
	w := newWorld(t, 1)
	w.every, w.valid = DefaultRebalance, DefaultValid
	lines := map[string]*line{}
	for _, region := range s.regions {
		lines[region] = &line{}
	}
	for second := range s.minutes * 60 {
		if happens := s.happens[second]; happens != nil {
			happens(w)
		}
		for _, region := range s.regions {
			w.demand[region] = s.demand(region, second)
		}
		w.step()
		for _, region := range s.regions {
			l, demand := lines[region], w.demand[region]
			share := w.inForce(region, Everything()).Fraction()
			l.demand, l.share = append(l.demand, demand), append(l.share, share*plotLimit)
			l.admitted = append(l.admitted, min(demand, share*plotLimit))
			l.fixed = append(l.fixed, min(demand, plotLimit/float64(len(s.regions))))
		}
	}
	return lines, w.most
}

// TestPlots holds that the plots of docs/regions.md are those of the code. To draw
// them anew: RATELIMIT_PLOTS=draw go test ./regions -run TestPlots -v.
func TestPlots(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		lines, most := s.played(t)
		require.LessOrEqual(t, most, Whole)
		path := filepath.Join("..", "docs", "img", s.file)
		drawn := s.svg(lines)
		if os.Getenv("RATELIMIT_PLOTS") == "draw" {
			require.NoError(t, os.WriteFile(path, []byte(drawn), 0o644))
		}
		committed, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(committed), drawn, "draw it anew: RATELIMIT_PLOTS=draw go test ./regions -run TestPlots")
		s.report(t, lines, most)
	}
}

// report logs the numbers of the docs' table.
func (s *scenario) report(t testing.TB, lines map[string]*line, most Share) {
	t.Logf("%s: at most %.4f in force", s.file, most.Fraction())
	var demand, fixed, admitted, best float64
	for _, region := range s.regions {
		l := lines[region]
		t.Logf("  %s: of %.0f asked, %.0f with equal shares, %.0f with measured ones", region, add(l.demand), add(l.fixed), add(l.admitted))
		demand, fixed, admitted = demand+add(l.demand), fixed+add(l.fixed), admitted+add(l.admitted)
	}
	for second := range lines[s.regions[0]].demand {
		asked := 0.0
		for _, region := range s.regions {
			asked += lines[region].demand[second]
		}
		best += min(asked, plotLimit)
	}
	t.Logf("  all: of %.0f asked and %.0f allowed, %.1f %% with equal shares, %.1f %% with measured ones", demand, best, 100*fixed/best, 100*admitted/best)
}

func add(list []float64) (sum float64) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// The measures of a plot, in pixels.
const (
	plotWidth, plotLeft, plotRight = 760, 64, 736
	panelTop, panelHeight          = 92, 120
	panelStep                      = panelHeight + 34
	plotTop                        = 110.0 // requests a second at the top of a panel
	plotEvery                      = 10    // seconds a point
)

const plotStyle = `<style>
.ground{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.quiet{fill:#59636e}.axis{stroke:#d0d7de}
.share{fill:#ddf4ff}.demand{fill:none;stroke:#59636e;stroke-dasharray:4 3;stroke-width:1.5}.fixed{fill:none;stroke:#9a6700;stroke-width:1.5}.admitted{fill:none;stroke:#0969da;stroke-width:2}
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}.title{font-size:16px;font-weight:600}
@media (prefers-color-scheme:dark){.ground{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.quiet{fill:#9198a1}.axis{stroke:#3d444d}
.share{fill:#12283f}.demand{stroke:#9198a1}.fixed{stroke:#d29922}.admitted{stroke:#4493f8}}
</style>
`

// svg draws the scenario, a panel for each region.
func (s *scenario) svg(lines map[string]*line) string {
	var out strings.Builder
	height := panelTop + len(s.regions)*panelStep + 10
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", plotWidth, height, plotWidth, height)
	fmt.Fprintf(&out, "<title>%s</title>\n%s", s.title, plotStyle)
	fmt.Fprintf(&out, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", plotWidth-1, height-1)
	fmt.Fprintf(&out, `<text class="text title" x="24" y="32">%s</text>`+"\n", s.title)
	x := 24
	for _, key := range []struct{ class, text string }{{"demand", "asked"}, {"fixed", "passed with equal shares"}, {"admitted", "passed with measured shares"}} {
		fmt.Fprintf(&out, `<line class="%s" x1="%d" y1="54" x2="%d" y2="54"/><text class="quiet" x="%d" y="58">%s</text>`+"\n", key.class, x, x+22, x+28, key.text)
		x += 60 + 7*len(key.text)
	}
	fmt.Fprintf(&out, `<rect class="share" x="%d" y="48" width="22" height="12"/><text class="quiet" x="%d" y="58">the share in force</text>`+"\n", x, x+28)
	fmt.Fprintf(&out, `<text class="quiet" x="24" y="78">requests a second, of a limit of %d, over %d minutes</text>`+"\n", plotLimit, s.minutes)
	for i, region := range s.regions {
		s.panel(&out, panelTop+i*panelStep, region, lines[region])
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// panel draws one region.
func (s *scenario) panel(out *strings.Builder, top int, region string, l *line) {
	bottom := top + panelHeight
	y := func(value float64) float64 { return float64(bottom) - value*panelHeight/plotTop }
	x := func(second int) float64 {
		return plotLeft + float64(second)*(plotRight-plotLeft)/float64(s.minutes*60)
	}
	area := fmt.Sprintf("%.1f,%d ", x(0), bottom)
	for second := 0; second < len(l.share); second += plotEvery {
		area += fmt.Sprintf("%.1f,%.1f ", x(second), y(l.share[second]))
	}
	fmt.Fprintf(out, `<polygon class="share" points="%s%.1f,%d"/>`+"\n", area, x(len(l.share)-1), bottom)
	for _, value := range []float64{0, 50, 100} {
		fmt.Fprintf(out, `<line class="axis" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/><text class="quiet" x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", plotLeft, y(value), plotRight, y(value), plotLeft-6, y(value)+4, value)
	}
	for _, second := range []int{900, 1200, 1800, 2100} {
		if mark := s.marks[second]; mark != "" {
			fmt.Fprintf(out, `<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="quiet" x="%.1f" y="%d">%s</text>`+"\n", x(second), top, x(second), bottom, x(second)+4, bottom+16, mark)
		}
	}
	for _, curve := range []struct {
		class  string
		values []float64
	}{{"demand", l.demand}, {"fixed", l.fixed}, {"admitted", l.admitted}} {
		points := ""
		for second := 0; second < len(curve.values); second += plotEvery {
			points += fmt.Sprintf("%.1f,%.1f ", x(second), y(curve.values[second]))
		}
		fmt.Fprintf(out, `<polyline class="%s" points="%s"/>`+"\n", curve.class, strings.TrimSpace(points))
	}
	fmt.Fprintf(out, `<text class="text" x="24" y="%d">%s</text>`+"\n", bottom+16, region)
}

// TestPlotsAreOfTheDefaults: the docs name these times.
func TestPlotsAreOfTheDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2*time.Minute, DefaultRebalance)
	require.Equal(t, 5*time.Minute, DefaultValid)
}
