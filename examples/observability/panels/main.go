// Command panels draws the panels of a Grafana dashboard as one SVG, from the
// answers of a Prometheus: what the dashboard would show, without a Grafana. It
// also lists the dashboard's expressions, for promtool to check.
//
//	panels -dashboard dashboard.json -prometheus http://127.0.0.1:9090 -from 1785000000 -to 1785000300 > panels.svg
//	panels -dashboard dashboard.json -rules > rules.yml && promtool check rules rules.yml
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// options are the command's flags.
type options struct {
	dashboard  string
	prometheus string
	from, to   int64
	rules      bool
}

func main() {
	var o options
	flag.StringVar(&o.dashboard, "dashboard", "examples/observability/dashboard.json", "the file of the dashboard")
	flag.StringVar(&o.prometheus, "prometheus", "http://127.0.0.1:9090", "the Prometheus to ask")
	flag.Int64Var(&o.from, "from", 0, "the begin, in Unix seconds; default: 5 minutes before the end")
	flag.Int64Var(&o.to, "to", 0, "the end, in Unix seconds; default: now")
	flag.BoolVar(&o.rules, "rules", false, "print the expressions as recording rules instead")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "panels:", err)
		os.Exit(1)
	}
}

// run draws the panels, or lists their expressions.
func run(ctx context.Context, out io.Writer, o options) error {
	board, err := readDashboard(o.dashboard)
	if err != nil {
		return err
	}
	if o.rules {
		_, err := io.WriteString(out, board.recordingRules())
		return err
	}
	end := time.Now()
	if o.to != 0 {
		end = time.Unix(o.to, 0)
	}
	begin := end.Add(-5 * time.Minute)
	if o.from != 0 {
		begin = time.Unix(o.from, 0)
	}
	if !begin.Before(end) {
		return fmt.Errorf("from: %d is not before the end, %d", begin.Unix(), end.Unix())
	}
	asked := period{begin: begin, end: end}
	plots := make([]plot, len(board.Panels))
	for i := range board.Panels {
		plots[i].panel = &board.Panels[i]
		if plots[i].lines, err = query(ctx, o.prometheus, asked, &board.Panels[i]); err != nil {
			return fmt.Errorf("panel %q: %w", board.Panels[i].Title, err)
		}
	}
	_, err = io.WriteString(out, draw(plots, asked))
	return err
}
