package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// answersToPrint are answers of every kind, by the name of the file in
// testdata that shows how they are printed.
func answersToPrint() map[string]struct {
	answer any
	print  func(*bytes.Buffer, []byte) error
} {
	at := time.Date(2026, 7, 1, 3, 4, 5, 0, time.UTC)
	type printed = struct {
		answer any
		print  func(*bytes.Buffer, []byte) error
	}
	as := func(print func(w *bytes.Buffer, body []byte) error, answer any) printed {
		return printed{answer, print}
	}
	status := func(w *bytes.Buffer, body []byte) error { return printing(printStatus)(w, body) }
	rules := func(w *bytes.Buffer, body []byte) error { return printing(printRules)(w, body) }
	explain := func(w *bytes.Buffer, body []byte) error { return printing(printExplain)(w, body) }
	wait, left := int64(40), int64(0)
	three := &adminapi.Numbers{Capacity: 3, RefillPerSecond: 0.01}
	return map[string]printed{
		"status_alone": as(status, &adminapi.Status{
			Version: "v0.3.0", Caddy: "v2.11.9", Source: "local", Instances: 1, Routes: []string{"a"},
			Memory: adminapi.Memory{MaxKeys: 10, Keys: map[string]int{"local": 2}},
		}),
		"status_down": as(status, &adminapi.Status{
			Version: "v0.3.0", Caddy: "v2.11.9", Source: "deny", Instances: 3, Fallback: "deny", StaticRules: 2,
			Fleet: &adminapi.Fleet{Counted: 3, HeartbeatAgeSeconds: 2.5, Disagree: 1, LastError: "timeout", Rules: []adminapi.FleetRules{{Hash: "00ff", Instances: 2}, {Hash: "none", Instances: 1}}},
			Redis: &adminapi.Redis{Nodes: []adminapi.Node{{
				Address: "127.0.0.1:6379/0", Breaker: "open", Since: &at,
				LastError: &adminapi.NodeError{Reason: "timeout", At: at, AgoSeconds: 192.5},
			}}},
			Rules: &adminapi.RulesInForce{
				State: adminapi.RulesPolling, PollOnly: "the server is a standby, which cannot notify", Hash: "00ff", Rules: 5,
				AgeSeconds: new(7200.0), Failures: 4, LastError: "connection refused", Rejected: 22,
				Rejections: []adminapi.RejectedRow{{ID: "7", Route: "a", Reason: "capacity 0 is out of bounds"}, {ID: "8", Reason: "the tenant is empty"}},
			},
			Memory: adminapi.Memory{MaxKeys: 10, Keys: map[string]int{"prefetch": 0, "local": 2, "remembered": 1}},
		}),
		"rules": as(rules, &adminapi.Rules{
			Postgres: 10, StaticRules: 1, Next: "abc", Rules: []adminapi.Rule{
				{Tenant: "*", Route: "a", From: adminapi.FromStatic, Numbers: adminapi.Numbers{Capacity: 200, RefillPerSecond: 100, Algorithm: "token_bucket", Mode: "shadow", Prefetch: 50}},
				{Tenant: "\x1b[2Jevil\t\n", Route: "b", From: adminapi.FromPostgres, NoRoute: true, Numbers: adminapi.Numbers{Capacity: 1, RefillPerSecond: 1.0 / 86400, Prefetch: 0, Shards: 4}},
			},
		}),
		"explain_refused": as(explain, &adminapi.Explain{Route: "a", Handlers: []adminapi.Handler{{
			Handlers: 2, Routes: []string{"a", "b"}, TenantFrom: "{http.request.header.X-Api-Key}", Tenant: "shop-a", Note: adminapi.NoteHashed,
			Candidates: []adminapi.Candidate{
				{From: adminapi.FromPostgres, Tenant: "shop-a", Route: "a"},
				{From: adminapi.FromStatic, Tenant: "shop-a", Route: "a", Exists: true, Wins: true, Rule: three},
				{From: adminapi.FromDefault, Exists: true, Rule: three},
			},
			Rule: three, RuleFrom: adminapi.FromStatic,
			Bucket: &adminapi.Bucket{
				Keys: []string{"rl:shop-a:a:0", "rl:shop-a:a:1"}, Redis: &adminapi.State{Capacity: 3, RetryAfterMs: 40_000, ResetAfterMs: 240_000},
				Remembered: []adminapi.Refusal{{Key: "rl:shop-a:a:0", Cost: 1, ForMs: 650}}, Prefetch: 4,
				Local: &adminapi.State{Capacity: 1, Remaining: 1},
			},
			Next: adminapi.Next{Outcome: "refused", Status: 429, Route: "a", Cost: 2, Remaining: &left, RetryAfter: &wait, Source: "remembered"},
		}}}),
		"explain_unauthorized": as(explain, &adminapi.Explain{Known: true, Route: "a", Handlers: []adminapi.Handler{
			{Handlers: 1, Routes: []string{"a"}, Tenant: "~guest", Next: adminapi.Next{Outcome: "unauthorized", Status: 401}},
			{
				Handlers: 1, Routes: []string{"a"}, Tenant: "x", Rule: three, RuleFrom: adminapi.FromDefault,
				Bucket: &adminapi.Bucket{Redis: &adminapi.State{Error: "breaker_open"}, Local: &adminapi.State{Capacity: 3, RetryAfterMs: -1}},
				Next:   adminapi.Next{Outcome: "unknown"},
			},
		}}),
		"reset": as(func(w *bytes.Buffer, body []byte) error { return printing(printReset)(w, body) },
			&adminapi.Reset{Buckets: []adminapi.ResetBucket{{Name: "shop-a", Route: "a", Here: true, Redis: adminapi.ResetDone}, {Name: "x", Route: "a", Here: true}}}),
		"refresh": as(func(w *bytes.Buffer, body []byte) error { return printing(printRefresh)(w, body) },
			&adminapi.Refresh{Rules: 5, Rejected: 1, Changed: true, TookSeconds: 0.0123}),
		"top": as(func(w *bytes.Buffer, body []byte) error { return printing(printTop)(w, body) },
			&adminapi.Top{Seconds: 64.2, Buckets: []adminapi.TopBucket{{Tenant: "shop-a", Route: "a", Refused: 1200, Over: 3}, {Tenant: "shop b", Route: "b", Refused: 7}}}),
		"explain_every": as(explain, &adminapi.Explain{Known: true, Handlers: []adminapi.Handler{
			{Route: "create-order", Rule: &adminapi.Numbers{Capacity: 3, RefillPerSecond: 0.01, Algorithm: "token_bucket", Mode: "enforce"}, RuleFrom: "postgres", Next: adminapi.Next{Outcome: "refused", Status: 429, Source: "redis", Route: "create-order"}},
			{Route: "login", Next: adminapi.Next{Outcome: "unauthorized", Status: 401}},
		}}),
		"top_requests": as(func(w *bytes.Buffer, body []byte) error { return printing(printTop)(w, body) },
			&adminapi.Top{By: adminapi.TopRequests, Seconds: 64.2, Buckets: []adminapi.TopBucket{{Tenant: "shop-a", Route: "a", Requests: 32000}}}),
		"top_shadow": as(func(w *bytes.Buffer, body []byte) error { return printing(printTop)(w, body) },
			&adminapi.Top{By: adminapi.TopShadow, Seconds: 64.2, Buckets: []adminapi.TopBucket{{Tenant: "shop-a", Route: "a", Shadow: 12, Over: 1}}}),
		"events": as(func(w *bytes.Buffer, body []byte) error { return printing(printEvents)(w, body) },
			&adminapi.Events{Last: 8, Events: []adminapi.Event{
				{Number: 7, At: at, Name: "rate_limit_breaker_opened", Data: map[string]any{"node": "127.0.0.1:6379/0", "reason": "\x1b[2Jtimeout"}},
				{Number: 8, At: at.Add(time.Minute), Name: "rate_limit_rules_poll_only"},
			}}),
	}
}

// TestCommandTables compares what people see with testdata. To write the
// files anew: RATELIMIT_UPDATE=1 go test -run TestCommandTables ./internal/cli
func TestCommandTables(t *testing.T) {
	t.Parallel()
	for name, test := range answersToPrint() {
		body, err := json.Marshal(test.answer)
		require.NoError(t, err)
		var got bytes.Buffer
		require.NoError(t, test.print(&got, body), name)
		file := filepath.Join("testdata", name+".txt")
		if os.Getenv("RATELIMIT_UPDATE") != "" {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
			require.NoError(t, os.WriteFile(file, got.Bytes(), 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), got.String(), name)
		require.NotContains(t, got.String(), "\x1b", "nothing of a client's reaches the terminal")
		require.Error(t, test.print(&got, []byte("<html>")), name)
	}
}

func TestRateText(t *testing.T) {
	t.Parallel()
	for refill, want := range map[float64]string{
		1: "1/s", 100: "100/s", 1.0 / 60: "1/m", 0.5: "30/m", 5.0 / 3600: "5/h", 1.0 / 86400: "1/d", 1.0 / 1000: "1/1000s",
		0.7 / 1.3: "0.538462/s", 2147483647: "2147483647/s", 1e-9: "1/1000000000s", 2.5: "150/m",
	} {
		require.Equal(t, want, rateText(refill))
	}
}

func TestClearError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"performing request: dial tcp: refused":                                        "no Caddy answers at the admin address here: start it, or say where it is",
		`caddy responded with error: HTTP 400: {"error":"parameter route is missing"}`: "parameter route is missing",
		"caddy responded with error: HTTP 404: 404 page not found\n":                   "the Caddy at here does not know this command",
		`caddy responded with error: HTTP 403: {"error":"host not allowed: x"}`:        "host not allowed: x",
		"caddy responded with error: HTTP 500: <html>":                                 "HTTP 500: <html>",
		"invalid admin address x: y":                                                   "invalid admin address x: y",
		"HTTP 502: reading error message: unexpected EOF":                              "unexpected EOF",
	} {
		require.ErrorContains(t, clearAnswer("here", errors.New(text)), want)
	}
}
