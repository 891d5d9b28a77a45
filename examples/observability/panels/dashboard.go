package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// dashboard is the part of a Grafana dashboard that is drawn.
type dashboard struct {
	Panels []panel `json:"panels"`
}

type panel struct {
	Title       string `json:"title"`
	GridPos     grid   `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string   `json:"unit"`
			Max  *float64 `json:"max"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

// grid is a panel's place, in the 24 columns of a dashboard.
type grid struct{ X, Y, W, H int }

type target struct {
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

func readDashboard(file string) (*dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	board := new(dashboard)
	if err := json.Unmarshal(text, board); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	return board, nil
}

// expression returns the target's expression with what Grafana puts in place of
// its variables where everything is chosen.
func (t *target) expression() string {
	return strings.NewReplacer("$__rate_interval", "20s", "$instance", ".*", "$zone", ".*").Replace(t.Expr)
}

// recordingRules lists the expressions as rules, which is what promtool checks.
func (d *dashboard) recordingRules() string {
	var out strings.Builder
	out.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for i := range d.Panels {
		for j := range d.Panels[i].Targets {
			fmt.Fprintf(&out, "      - record: panel_%d_%d\n        expr: %q\n", i, j, d.Panels[i].Targets[j].expression())
		}
	}
	return out.String()
}
