package cases_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/rulecache"
)

// metricsContract is every metric with its type and labels, `le` left out.
var metricsContract = map[string]string{
	"caddy_rate_limit_requests_total":           "counter outcome source zone",
	"caddy_rate_limit_declined_requests_total":  "counter reason zone",
	"caddy_rate_limit_charges_unread_total":     "counter reason zone",
	"caddy_rate_limit_charges_cut_total":        "counter zone",
	"caddy_rate_limit_settlements_lost_total":   "counter reason",
	"caddy_rate_limit_bans_total":               "counter zone",
	"caddy_rate_limit_process_time_seconds":     "histogram zone",
	"caddy_rate_limit_redis_errors_total":       "counter reason",
	"caddy_rate_limit_breaker_open":             "gauge node",
	"caddy_rate_limit_redis_connections":        "gauge node",
	"caddy_rate_limit_redis_call_seconds":       "histogram node",
	"caddy_rate_limit_redis_call_entries_total": "counter node",
	"caddy_rate_limit_rules":                    "gauge",
	"caddy_rate_limit_rules_rejected":           "gauge",
	"caddy_rate_limit_rules_age_seconds":        "gauge",
	"caddy_rate_limit_rules_info":               "gauge hash",
	"caddy_rate_limit_rules_listening":          "gauge",
	"caddy_rate_limit_rules_loads_total":        "counter result",
	"caddy_rate_limit_instances":                "gauge",
	"caddy_rate_limit_instances_counted":        "gauge",
	"caddy_rate_limit_instances_disagree":       "gauge",
	"caddy_rate_limit_region_share":             "gauge region",
	"caddy_rate_limit_region_share_age_seconds": "gauge region",
	"caddy_rate_limit_region_lapsed":            "gauge region",
	"caddy_rate_limit_ignorant":                 "gauge",
	"caddy_rate_limit_heartbeat_age_seconds":    "gauge",
	"caddy_rate_limit_keys":                     "gauge store",
	"caddy_rate_limit_max_keys":                 "gauge",
	"caddy_rate_limit_running_requests":         "gauge",
	"caddy_rate_limit_state_changes_total":      "counter event",
	"caddy_rate_limit_events_dropped_total":     "counter event",
}

var (
	typeLine  = regexp.MustCompile(`(?m)^# TYPE (caddy_rate_limit_\w+) (\w+)$`)
	helpLine  = regexp.MustCompile(`(?m)^# HELP (caddy_rate_limit_\w+) [A-Z].+\.$`)
	seriesRE  = regexp.MustCompile(`(?m)^(caddy_rate_limit_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	labelRE   = regexp.MustCompile(`(\w+)="`)
	metricRE  = regexp.MustCompile(`\bcaddy_rate_limit_\w+`)
	histogram = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// TestMetricsContract reads a real gateway's metrics after odd requests: each is
// there with its help, type and labels, the pages and the examples name no other,
// and requests add no series.
func TestMetricsContract(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.Redis(t), servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema(rulecache.DefaultTable, rulecache.DefaultChannel))
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 2s\n}\nrules "+postgres.URL("")+"\ninstances auto 2\nregion eu auto\n}", gateway.Answers("rate_limit a {\nlimit 1/1000s\n}\nrate_limit /login login {\nlimit 5/m\ncharge status 401\nban 1h\n}")))
	g.Passes(2, "t1")
	g.Get("/", "") // 401
	gateway.Eventually(t, 20*time.Second, "the first count", func() bool {
		return len(g.Family("caddy_rate_limit_instances_counted")) == 1
	})
	before := g.AdminGet("/metrics")
	for i := range 50 {
		g.Passes(2, fmt.Sprintf("secret-tenant-%d", i))
		g.Get(fmt.Sprintf("/secret-path-%d?x=secret", i), "t1")
	}
	after := g.AdminGet("/metrics")
	require.NotContains(t, after, "secret")
	require.Len(t, seriesRE.FindAllString(after, -1), len(seriesRE.FindAllString(before, -1)), "requests add no series")

	found := map[string]string{}
	for _, match := range typeLine.FindAllStringSubmatch(after, -1) {
		found[match[1]] = strings.TrimSpace(match[2] + " " + strings.Join(labelsOf(after, match[1]), " "))
	}
	require.Equal(t, metricsContract, found)
	require.Len(t, helpLine.FindAllString(after, -1), len(found), "each has a sentence of help")
}

// labelsOf returns the names of a metric's labels, sorted.
func labelsOf(text, metric string) (labels []string) {
	for _, match := range seriesRE.FindAllStringSubmatch(text, -1) {
		if match[1] != metric && match[1]+match[2] != metric {
			continue
		}
		for _, label := range labelRE.FindAllStringSubmatch(match[3], -1) {
			if label[1] != "le" && !slices.Contains(labels, label[1]) {
				labels = append(labels, label[1])
			}
		}
	}
	slices.Sort(labels)
	return labels
}

// TestMetricsInPages fails where a page, an alert or the dashboard names a metric
// that is not there, and where docs/observability.md leaves one out.
func TestMetricsInPages(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../docs/observability.md", "../examples/observability/alerts.yml", "../examples/observability/alerts_test.yml", "../examples/observability/dashboard.json", "../docs/directive.md", "../docs/global-option.md", "../docs/recipes.md", "../docs/failure.md", "../docs/rules.md", "../docs/video.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range metricRE.FindAllString(string(text), -1) {
			base := histogram.ReplaceAllString(name, "")
			_, plain := metricsContract[name]
			require.True(t, plain || strings.HasPrefix(metricsContract[base], "histogram"), "%s names %s", file, name)
		}
	}
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	for name := range metricsContract {
		require.Contains(t, string(page), "`"+name, "../docs/observability.md leaves out %s", name)
	}
}

// TestEventsInPages fails where docs/observability.md leaves out an event.
func TestEventsInPages(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\nlimit 1/s\n}")))
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	events := g.Family("caddy_rate_limit_events_dropped_total")
	require.Greater(t, len(events), 10)
	for series := range events {
		name, _, _ := strings.Cut(series[strings.Index(series, `"`)+1:], `"`)
		require.Contains(t, string(page), "| `"+name+"` |")
	}
}

// TestAlertsInPages fails where an alert has no test, or no advice.
func TestAlertsInPages(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../examples/observability/alerts.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("../examples/observability/alerts_test.yml")
	require.NoError(t, err)
	page, err := os.ReadFile("../docs/observability.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Regexp(t, `alertname: `+name[1]+`\n +eval_time: \w+\n +exp_alerts:`, string(tests), "a test in which %s fires", name[1])
		require.Regexp(t, `alertname: `+name[1]+`\n +eval_time: \w+\n +(- alertname|\n|$)`, string(tests)+"\n", "a test in which %s does not fire", name[1])
		require.Contains(t, string(page), "| `"+name[1]+"` |")
	}
}

// board is the part of a Grafana dashboard that is checked.
type board struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID          int    `json:"id"`
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Datasource  struct{ Type, UID string }
		GridPos     struct{ X, Y, W, H int }
		FieldConfig struct {
			Defaults struct{ Unit string }
		}
		Targets []struct{ RefID, Expr, LegendFormat string }
	} `json:"panels"`
}

// TestDashboard checks what Grafana's importer asks for. That each expression is
// one of PromQL, promtool checks.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../examples/observability/dashboard.json")
	require.NoError(t, err)
	var d board
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.UID)
	require.NotEmpty(t, d.Title)
	require.Positive(t, d.SchemaVersion)
	variables := []string{"__rate_interval"}
	for _, variable := range d.Templating.List {
		variables = append(variables, variable.Name)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.Contains(t, []string{"timeseries", "stat"}, p.Type)
		require.Equal(t, "prometheus", p.Datasource.Type)
		require.Equal(t, "${datasource}", p.Datasource.UID)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s lies on another panel", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.NotEmpty(t, target.RefID)
			require.NotEmpty(t, target.LegendFormat)
			for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				require.Contains(t, variables, used[1], p.Title)
			}
		}
	}
}
