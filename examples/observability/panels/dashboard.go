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
	Type        string `json:"type"`
	GridPos     grid   `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit       string   `json:"unit"`
			Max        *float64 `json:"max"`
			Thresholds struct {
				Steps []threshold `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
		Overrides []override `json:"overrides"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

// threshold is the color of a single number from a value on.
type threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// override is what one series of a panel has of its own.
type override struct {
	Matcher struct {
		Options string `json:"options"`
	} `json:"matcher"`
	Properties []struct {
		Value struct {
			FixedColor string `json:"fixedColor"`
		} `json:"value"`
	} `json:"properties"`
}

// fixed is the color of a series that has one of its own, or blank.
func (p *panel) fixed(name string) string {
	for _, o := range p.FieldConfig.Overrides {
		if o.Matcher.Options == name && len(o.Properties) > 0 {
			return o.Properties[0].Value.FixedColor
		}
	}
	return ""
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
	return strings.NewReplacer("$__rate_interval", "20s", "$job", ".*", "$cluster", ".*", "$instance", ".*", "$zone", ".*").Replace(t.Expr)
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
