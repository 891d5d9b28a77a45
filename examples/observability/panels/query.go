package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"time"
)

// period is the time that is drawn.
type period struct{ begin, end time.Time }

// steps is how many points a line has.
const steps = 150

func (p period) seconds() float64 { return p.end.Sub(p.begin).Seconds() }

// line is one series of a panel.
type line struct {
	name   string
	points []point
}

type point struct{ at, value float64 }

// answer is what Prometheus' query_range returns.
type answer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Values [][2]any          `json:"values"`
		} `json:"result"`
	} `json:"data"`
}

// query asks Prometheus for the lines of a panel.
func query(ctx context.Context, prometheus string, asked period, p *panel) ([]line, error) {
	var lines []line
	for i := range p.Targets {
		found, err := p.Targets[i].query(ctx, prometheus, asked)
		if err != nil {
			return nil, err
		}
		lines = append(lines, found...)
	}
	sort.SliceStable(lines, func(i, j int) bool { return lines[i].name < lines[j].name })
	return lines, nil
}

func (t *target) query(ctx context.Context, prometheus string, asked period) ([]line, error) {
	form := url.Values{
		"query": {t.expression()},
		"start": {strconv.FormatInt(asked.begin.Unix(), 10)},
		"end":   {strconv.FormatInt(asked.end.Unix(), 10)},
		"step":  {strconv.FormatFloat(max(asked.seconds()/steps, 1), 'f', 3, 64)},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, prometheus+"/api/v1/query_range?"+form.Encode(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus: %w", err)
	}
	defer res.Body.Close()
	var got answer
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		return nil, fmt.Errorf("reading Prometheus' answer: %w", err)
	}
	if got.Status != "success" {
		return nil, errors.New("prometheus answers: " + got.Error)
	}
	lines := make([]line, 0, len(got.Data.Result))
	for _, series := range got.Data.Result {
		lines = append(lines, line{t.legend(series.Metric), points(series.Values)})
	}
	return lines, nil
}

// points reads values, and leaves out those that are no number.
func points(values [][2]any) []point {
	read := make([]point, 0, len(values))
	for _, pair := range values {
		at, _ := pair[0].(float64)
		text, _ := pair[1].(string)
		if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
			read = append(read, point{at, value})
		}
	}
	return read
}

// labelInLegend is a label in a legend, such as {{outcome}}.
var labelInLegend = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

func (t *target) legend(labels map[string]string) string {
	return labelInLegend.ReplaceAllStringFunc(t.LegendFormat, func(found string) string {
		return labels[labelInLegend.FindStringSubmatch(found)[1]]
	})
}
