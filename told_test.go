package ratelimit

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
)

// leaving is a limiter whose client leaves while it decides, at the call number at.
type leaving struct {
	limit.Limiter
	cancel context.CancelFunc
	at     int
}

func (l *leaving) Take(ctx context.Context, wanted limit.Request) (limit.Decision, error) {
	if l.at--; l.at > 0 {
		return l.Limiter.Take(ctx, wanted)
	}
	l.cancel()
	return limit.Decision{}, ctx.Err()
}

// TestH7Left counts a request whose client left while it waited, for each bucket
// that nobody has decided about.
func TestH7Left(t *testing.T) {
	for name, test := range map[string]struct {
		at            int
		granted, left float64
	}{
		"all":               {1, 0, 2},
		"between two calls": {2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := provision(t, `{"static_rules":[{"tenant":"*","route":"h7s","capacity":5,"refill_per_second":1,"mode":"shadow"}]}`,
				`{"routes":["h7s","h7e"],"limits":[{"route":"h7e","capacity":5,"refill_per_second":1}]}`)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, h.app.metrics.release()) })
			ctx, cancel := context.WithCancel(t.Context())
			h.app.limiter = &leaving{h.app.limiter, cancel, test.at}
			vars := map[string]any{}
			ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, vars)
			ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer())
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx)
			r.Header.Set("X-Api-Key", "t")
			err = h.ServeHTTP(httptest.NewRecorder(), r, nil)
			var failed caddyhttp.HandlerError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, statusClientClosedRequest, failed.StatusCode)
			counted := func(what, source string) (n float64) {
				for _, route := range []string{"h7s", "h7e"} {
					n += valueOf(t, processCollectors().requests.WithLabelValues(route, what, source))
				}
				return n
			}
			require.InDelta(t, test.left, counted("left", "none"), 0)
			require.InDelta(t, test.granted, counted("granted", "local"), 0)
			f, found := vars[verdictKey].(*verdict).finding()
			require.True(t, found)
			require.Equal(t, "left", f.outcome)
		})
	}
}

// valueOf is what a counter has counted.
func valueOf(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(counter))
	families, err := registry.Gather()
	require.NoError(t, err)
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// TestH9Share sees t told by the pace of whoever decided.
func TestH9Share(t *testing.T) {
	t.Parallel()
	rule := limit.Rule{Algorithm: limit.TokenBucket, Capacity: 10, Refill: 1, WindowMillis: 10_000}
	c := charge{
		zone: &zone{sharers: func() int64 { return 5 }}, source: limit.SourceLocal, bucket: limit.Bucket{Rule: rule},
		state: limit.State{Remaining: 1, ResetAfter: 5 * time.Second},
	}
	q := headers.Quota{Rule: rule, Held: c.held(), State: c.state}
	seconds, _ := q.UntilMore()
	require.EqualValues(t, 5, seconds, "a fifth of the rule holds 2 and refills one in 5 s")
	c.source = limit.SourceRedis
	require.Equal(t, rule, c.held())
}

// TestH10Waits makes the longest time that there is no longer.
func TestH10Waits(t *testing.T) {
	t.Parallel()
	require.Equal(t, limit.MaxWait, jittered(limit.MaxWindow, 100, func() float64 { return 1 }))
}

// TestK15EarlyData sends requests whose handshake is not complete: none that is
// limited by its address shares a bucket with others, or gets 401.
func TestK15EarlyData(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]string{
		"tenant":    `{"tenant":"{http.request.remote.host}","limits":[{"capacity":1,"refill_per_second":0.001}]}`,
		"client_ip": `{"routes":["k15"],"tenant":"{http.vars.client_ip}","limits":[{"capacity":1,"refill_per_second":0.001}]}`,
		"guest":     `{"guest":"ip","limits":[{"capacity":1,"refill_per_second":0.001}]}`,
		"zone":      `{"rate_limits":{"z":{"key":"{http.request.remote.host}","window":"1h","max_events":1}}}`,
	} {
		h, err := provision(t, "{}", handler)
		require.NoError(t, err)
		send := func(address string, complete bool) int {
			r := httptest.NewRequest(http.MethodGet, "https://x/", http.NoBody)
			r.RemoteAddr, r.TLS = address+":5000", &tls.ConnectionState{HandshakeComplete: complete}
			w := httptest.NewRecorder()
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
			if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
				return failed.StatusCode
			}
			require.NoError(t, err)
			return 200
		}
		for _, address := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
			require.Equal(t, http.StatusTooEarly, send(address, false), name)
			require.Equal(t, 200, send(address, true), name)
			require.Equal(t, 429, send(address, true), name)
		}
	}
}
