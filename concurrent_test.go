package ratelimit

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// inside sends a request through a handler, and another from within its service.
func inside(t *testing.T, h *Handler, then func()) {
	t.Helper()
	_, err := call(t, h, func(w http.ResponseWriter, _ *http.Request) error {
		then()
		w.WriteHeader(http.StatusOK)
		return nil
	})
	require.NoError(t, err)
}

func TestConcurrent(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["runs"],"concurrent":[{"limit":2}]}`)
	require.NoError(t, err)
	ok := says(200, nil, "")
	for range 3 {
		inside(t, h, func() {
			inside(t, h, func() {
				w, err := call(t, h, ok)
				require.Equal(t, 429, statusOf(err))
				for name, want := range map[string]string{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1", "Retry-After": "1"} {
					require.Equal(t, want, w.Header().Get(name), name)
				}
			})
		})
	}
	_, err = call(t, h, func(http.ResponseWriter, *http.Request) error { return errors.New("x") })
	require.Error(t, err)
	func() {
		defer func() { _ = recover() }()
		_, _ = call(t, h, func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) })
	}()
	require.Zero(t, h.app.memory.local.AllRunning())
}

// TestConcurrentBesideBuckets: who is refused for one takes nothing of the other, and
// headers tell of the bucket unless the place refuses.
func TestConcurrentBesideBuckets(t *testing.T) {
	h, err := provision(t, `{"static_rules":[{"tenant":"free","route":"both-a","mode":"unlimited","capacity":1,"refill_per_second":1}]}`,
		`{"routes":["both-a","both-b"],"headers":"both","concurrent":[{"limit":1,"route":"both-a"}],"limits":[{"capacity":3,"refill_per_second":0.0001}]}`)
	require.NoError(t, err)
	ok := says(200, nil, "")
	inside(t, h, func() {
		for range 2 {
			w, err := call(t, h, ok)
			require.Equal(t, 429, statusOf(err))
			require.Equal(t, `"both-a";q=1;qu="concurrent-requests"`, w.Header().Get("Ratelimit-Policy"))
		}
	})
	w, err := call(t, h, ok)
	require.NoError(t, err)
	require.Equal(t, "1", w.Header().Get("X-Ratelimit-Remaining"), "two requests took tokens, and none that was refused")
	require.Equal(t, "3", w.Header().Get("X-Ratelimit-Limit"))
	_, err = call(t, h, ok)
	require.NoError(t, err)
	w, err = call(t, h, ok)
	require.Equal(t, 429, statusOf(err))
	require.Equal(t, "3", w.Header().Get("X-Ratelimit-Limit"), "the bucket refuses")
	require.Zero(t, h.app.memory.local.AllRunning())
	key := limit.Key{Tenant: "t", Route: "both-a"}
	require.Zero(t, h.app.memory.local.Running(key))
}

// TestConcurrentInShadow: all pass, and each runs.
func TestConcurrentInShadow(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["runs-shadow"],"shadow":true,"concurrent":[{"limit":1}]}`)
	require.NoError(t, err)
	inside(t, h, func() {
		inside(t, h, func() { require.Equal(t, 2, h.app.memory.local.AllRunning()) })
	})
	require.Zero(t, h.app.memory.local.AllRunning())
}

// TestConcurrentExplained: explain tells of places alone, and how many are free.
func TestConcurrentExplained(t *testing.T) {
	h := started(t, `{}`, `{"routes":["runs-told"],"concurrent":[{"limit":2}]}`)
	inside(t, h, func() {
		told := explained(t, h.app, url.Values{"tenant": {"t"}, "route": {"runs-told"}})
		require.Equal(t, "handler", told.RuleFrom)
		require.EqualValues(t, 2, told.Rule.Concurrent)
		require.Empty(t, told.Bucket.Local.Error)
		require.EqualValues(t, 1, told.Bucket.Local.Remaining)
		require.EqualValues(t, 2, told.Bucket.Local.Capacity)
		require.Zero(t, *told.Next.Remaining, "once it runs")
		require.Equal(t, "granted", told.Next.Outcome)
		inside(t, h, func() {
			told := explained(t, h.app, url.Values{"tenant": {"t"}, "route": {"runs-told"}})
			require.Equal(t, 429, told.Next.Status)
			require.Equal(t, "concurrency", told.Next.Reason)
		})
	})
}

func TestConcurrentRefused(t *testing.T) {
	for handler, want := range map[string]string{
		`{"concurrent":[{"limit":0}]}`:             "concurrent 0 is out of bounds: allowed are 1 to 10000",
		`{"concurrent":[{"limit":-1}]}`:            "concurrent -1 is out of bounds",
		`{"concurrent":[{"limit":10001}]}`:         "concurrent 10001 is out of bounds",
		`{"concurrent":[{"limit":1},{"limit":2}]}`: "concurrent[1]: another one is for the same route",
		`{"concurrent":[{"limit":1,"route":"x"}]}`: `"x" is not a route of the handler`,
		`{"concurrent":[{"limit":1}],"prefetch":"5","limits":[{"capacity":5,"refill_per_second":1}]}`: "does not go together with prefetch or shards",
		`{"concurrent":[{"limit":1}],"shards":4,"limits":[{"capacity":5,"refill_per_second":1}]}`:     "does not go together with prefetch or shards",
		`{"concurrent":[{"limit":1}],"rate_limits":{"z":{"key":"a","window":"1s","max_events":1}}}`:   "not together with zones",
		`{"concurrent":[{"limit":1}],"ban":{"for":"1h"}}`:                                             "with `concurrent` alone there is none",
		`{"concurrent":[{"limit":1}],"charge":[{"status":["401"]}]}`:                                  "with `concurrent` alone there is none",
		`{"concurrent":[{"limit":1}],"cost":"3"}`:                                                     "with `concurrent` alone there is none",
	} {
		_, err := provision(t, `{}`, handler)
		require.ErrorContains(t, err, want, handler)
	}
	for _, app := range []string{"0", "-1", "10001"} {
		_, err := provision(t, `{"static_rules":[{"tenant":"a","route":"b","capacity":1,"refill_per_second":1,"concurrent":`+app+`}]}`, `{"limits":[{"capacity":5,"refill_per_second":1}]}`)
		if app == "0" {
			require.NoError(t, err) // as where nothing is said
			continue
		}
		require.ErrorContains(t, err, "static_rules[0].concurrent "+app+" is out of bounds")
	}
	for text, want := range map[string]string{
		"concurrent":                        "concurrent needs a number of requests",
		"concurrent 0":                      "allowed are 1 to 10000",
		"concurrent many":                   `"many" is not a whole number`,
		"concurrent 4 to default":           "on <route>",
		"concurrent 4 on x":                 "is not a route of this directive",
		"concurrent 4\nconcurrent 5":        "twice for the same route",
		"concurrent 99999999999999999999":   "is not a whole number",
		"concurrent 4\nlimit 5/s\nshards 4": "",
	} {
		h := new(Handler)
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("rate_limit {\n" + text + "\n}"))
		if want == "" {
			require.NoError(t, err, "what does not go together is found when the handler is provisioned")
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}
