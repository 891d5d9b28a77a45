package ratelimit

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
)

// zonesOf checks the zones of a handler's JSON, in an app with or without Redis.
func zonesOf(t *testing.T, app *App, handler string) ([]*zone, *observer.ObservedLogs, error) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	h := &Handler{app: app, logger: zap.New(core)}
	require.NoError(t, caddy.StrictUnmarshalJSON([]byte(handler), h))
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := h.checkZoneOptions(); err != nil {
		return nil, logs, err
	}
	zones, err := h.zonesByName(ctx)
	return zones, logs, err
}

func TestZonesAsInTheReadme(t *testing.T) {
	zones, logs, err := zonesOf(t, &App{Redis: new(Redis)}, `{
		"rate_limits": {
			"static_example": {"match": [{"method": ["GET"]}], "key": "static", "window": "1m", "max_events": 100},
			"dynamic_example": {"key": "{http.request.remote.host}", "window": "5s", "max_events": 2}
		},
		"distributed": {},
		"log_key": true
	}`)
	require.NoError(t, err)
	require.Len(t, zones, 2)
	static, dynamic := zones[0], zones[1]
	require.Equal(t, "static_example", static.name, "the higher rate first")
	require.Equal(t, "static", static.key.template)
	require.Equal(t, limit.Rule{
		Capacity: 100, Refill: 100.0 / 60, WindowMillis: 60_000, Algorithm: limit.SlidingWindowLog,
		Mode: limit.Enforce, Prefetch: limit.PrefetchOff, Shards: 1,
	}, static.fallback)
	require.Equal(t, "{http.request.remote.host}", dynamic.key.template)
	require.EqualValues(t, 5000, dynamic.fallback.WindowMillis)
	for method, want := range map[string]bool{"GET": true, "POST": false} {
		matched, err := static.match.AnyMatchWithError(httptest.NewRequest(method, "/", nil))
		require.NoError(t, err)
		require.Equal(t, want, matched, method)
	}
	require.Empty(t, dynamic.match)
	require.Equal(t, 1, logs.FilterMessageSnippet("ignored").FilterField(zap.Strings("options", []string{"distributed"})).Len())
}

func TestZonesRule(t *testing.T) {
	tests := map[string]struct {
		handler string
		want    limit.Rule
	}{
		"algorithm of the zone":    {`{"rate_limits":{"a":{"window":"1s","max_events":5,"algorithm":"token_bucket"}}}`, limit.Rule{Capacity: 5, Refill: 5, WindowMillis: 1000, Algorithm: limit.TokenBucket}},
		"algorithm of the handler": {`{"algorithm":"sliding_window_counter","rate_limits":{"a":{"window":"1s","max_events":5}}}`, limit.Rule{Capacity: 5, Refill: 5, WindowMillis: 1000, Algorithm: limit.SlidingWindowCounter}},
		"the zone's wins":          {`{"algorithm":"sliding_window_counter","rate_limits":{"a":{"window":"1s","max_events":5,"algorithm":"token_bucket"}}}`, limit.Rule{Capacity: 5, Refill: 5, WindowMillis: 1000, Algorithm: limit.TokenBucket}},
		"burst":                    {`{"rate_limits":{"a":{"window":"1m","max_events":60,"burst":5,"algorithm":"token_bucket"}}}`, limit.Rule{Capacity: 5, Refill: 1, WindowMillis: 5000, Algorithm: limit.TokenBucket}},
		"window in nanoseconds":    {`{"rate_limits":{"a":{"window":1500000000,"max_events":3}}}`, limit.Rule{Capacity: 3, Refill: 2, WindowMillis: 1500, Algorithm: limit.SlidingWindowLog}},
		"shadow":                   {`{"shadow":true,"rate_limits":{"a":{"window":"1s","max_events":5}}}`, limit.Rule{Capacity: 5, Refill: 5, WindowMillis: 1000, Algorithm: limit.SlidingWindowLog, Mode: limit.Shadow}},
		"many, without a log":      {`{"rate_limits":{"a":{"window":"1s","max_events":200000,"algorithm":"token_bucket"}}}`, limit.Rule{Capacity: 200_000, Refill: 200_000, WindowMillis: 1000, Algorithm: limit.TokenBucket}},
		"ten years":                {`{"rate_limits":{"a":{"window":"3650d","max_events":1}}}`, limit.Rule{Capacity: 1, Refill: 1 / limit.MaxWindow.Seconds(), WindowMillis: limit.MaxWindow.Milliseconds(), Algorithm: limit.SlidingWindowLog}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			zones, _, err := zonesOf(t, new(App), test.handler)
			require.NoError(t, err)
			test.want = test.want.Or(limit.Rule{Mode: limit.Enforce, Prefetch: limit.PrefetchOff, Shards: 1})
			require.Equal(t, test.want, zones[0].fallback)
			require.Equal(t, test.want.Algorithm, zones[0].defaults.Algorithm, "what another rule counts by")
		})
	}
}

func TestZonesRefused(t *testing.T) {
	tests := map[string]struct{ handler, want string }{
		"max_events 0":           {`{"rate_limits":{"a":{"window":"1s","max_events":0}}}`, "rate_limits.a.max_events: 0 is out of bounds"},
		"max_events missing":     {`{"rate_limits":{"a":{"window":"1s"}}}`, "rate_limits.a.max_events: 0 is out of bounds"},
		"max_events negative":    {`{"rate_limits":{"a":{"window":"1s","max_events":-1}}}`, "rate_limits.a.max_events: -1 is out of bounds"},
		"max_events too many":    {`{"rate_limits":{"a":{"window":"1s","max_events":2147483648,"algorithm":"token_bucket"}}}`, "rate_limits.a.max_events"},
		"too many for a log":     {`{"rate_limits":{"a":{"window":"1s","max_events":100001}}}`, "more with the algorithm sliding_window_counter"},
		"window missing":         {`{"rate_limits":{"a":{"max_events":1}}}`, "rate_limits.a.window: 0s is out of bounds"},
		"window negative":        {`{"rate_limits":{"a":{"max_events":1,"window":-5}}}`, "rate_limits.a.window"},
		"window under 1 ms":      {`{"rate_limits":{"a":{"max_events":1,"window":"999us"}}}`, "rate_limits.a.window"},
		"window over ten years":  {`{"rate_limits":{"a":{"max_events":1,"window":"3651d"}}}`, "rate_limits.a.window"},
		"burst negative":         {`{"rate_limits":{"a":{"max_events":1,"window":"1s","burst":-1}}}`, "rate_limits.a.burst"},
		"burst below 1 ms":       {`{"rate_limits":{"a":{"max_events":2000000,"window":"1s","burst":1,"algorithm":"token_bucket"}}}`, "1 ms to 10 years"},
		"ipv4_prefix":            {`{"rate_limits":{"a":{"max_events":1,"window":"1s","ipv4_prefix":33}}}`, "rate_limits.a.ipv4_prefix: 33 is out of bounds: allowed are 1 to 32"},
		"ipv6_prefix":            {`{"rate_limits":{"a":{"max_events":1,"window":"1s","ipv6_prefix":129}}}`, "rate_limits.a.ipv6_prefix: 129 is out of bounds: allowed are 1 to 128"},
		"ipv6_prefix negative":   {`{"rate_limits":{"a":{"max_events":1,"window":"1s","ipv6_prefix":-1}}}`, "rate_limits.a.ipv6_prefix"},
		"unknown algorithm":      {`{"rate_limits":{"a":{"max_events":1,"window":"1s","algorithm":"leaky"}}}`, "rate_limits.a.algorithm: unknown algorithm"},
		"unknown matcher":        {`{"rate_limits":{"a":{"max_events":1,"window":"1s","match":[{"nowhere":{}}]}}}`, "rate_limits.a.match"},
		"no zone under the name": {`{"rate_limits":{"a":null}}`, "rate_limits.a: the zone is empty"},
		"no name":                {`{"rate_limits":{"":{"max_events":1,"window":"1s"}}}`, "needs a name"},
		"with routes":            {`{"routes":["b"],"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "routes: not together with zones"},
		"with a tenant":          {`{"tenant":"x","rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "tenant: not together with zones"},
		"with hashed tenants":    {`{"tenant_hashed":true,"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "tenant: not together with zones"},
		"with guest":             {`{"guest":"allow","rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "guest: not together with zones"},
		"with unknown":           {`{"unknown":"deny","rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "unknown: not together with zones"},
		"with limits":            {`{"limits":[{"capacity":1,"refill_per_second":1}],"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "limits: not together with zones"},
		"with a prefix outside":  {`{"ipv6_prefix":64,"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "ipv6_prefix: not together with zones"},
		"jitter below 0":         {`{"jitter":-0.1,"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "jitter: -0.1 is out of bounds"},
		"jitter over 100":        {`{"jitter":101,"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "jitter: 101 is out of bounds"},
		"sweep_interval":         {`{"sweep_interval":-1,"rate_limits":{"a":{"max_events":1,"window":"1s"}}}`, "sweep_interval"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := zonesOf(t, new(App), test.handler)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestZonesWithoutEffect(t *testing.T) {
	_, logs, err := zonesOf(t, &App{Redis: new(Redis)}, `{
		"rate_limits": {"a": {"window": "1s", "max_events": 1}}, "sweep_interval": "1m",
		"distributed": {"read_interval": "5s", "write_interval": "5s", "purge_age": "1m"},
		"storage": {"module": "redis", "address": "127.0.0.1"}
	}`)
	require.NoError(t, err)
	require.Equal(t, 1, logs.FilterMessageSnippet("the options are ignored").FilterField(zap.Strings("options", []string{"distributed", "storage"})).Len())
	require.Equal(t, 1, logs.FilterMessageSnippet("sweep_interval has no effect").Len())

	_, logs, err = zonesOf(t, new(App), `{"rate_limits": {"a": {"window": "1s", "max_events": 1}}, "distributed": null, "storage": null}`)
	require.NoError(t, err)
	require.Empty(t, logs.All())
}

func TestZonesOrder(t *testing.T) {
	for range 20 { // the order of a map changes
		zones, _, err := zonesOf(t, new(App), `{"rate_limits": {
			"minute": {"window": "1m", "max_events": 10}, "second": {"window": "1s", "max_events": 1},
			"b": {"window": "1h", "max_events": 60}, "a": {"window": "1m", "max_events": 1}
		}}`)
		require.NoError(t, err)
		names := make([]string, 0, len(zones))
		for i := range zones {
			names = append(names, zones[i].name)
		}
		require.Equal(t, []string{"second", "minute", "a", "b"}, names)
	}
}

func TestZonesNames(t *testing.T) {
	for name, route := range map[string]string{
		"create-order": "create-order", "log in": "log%20in", "*": "%2A", "{x}": "%7Bx%7D", "a/b": "a%2Fb", "größe": "gr%C3%B6%C3%9Fe",
	} {
		zones, _, err := zonesOf(t, new(App), `{"rate_limits": {"`+name+`": {"window": "1m", "max_events": 1}}}`)
		require.NoError(t, err, name)
		require.Equal(t, name, zones[0].name)
		require.Equal(t, route, zones[0].route)
		require.Equal(t, route == name, limit.ValidRoute(zones[0].route), "a rule can name it")
	}
}

func TestMaskKey(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key        string
		ipv4, ipv6 int
		want       string
	}{
		{"10.1.2.3", 0, 0, "10.1.2.3"},
		{"10.1.2.3", 24, 0, "10.1.2.0/24"},
		{"10.1.2.3", 0, 64, "10.1.2.3"},
		{"10.1.2.3", 32, 64, "10.1.2.3/32"},
		{"10.1.2.3", 1, 64, "0.0.0.0/1"},
		{"2001:db8::1", 0, 64, "2001:db8::/64"},
		{"2001:db8:0:0:ffff::1", 24, 64, "2001:db8::/64"},
		{"2001:DB8:0:0:ABCD::1", 24, 64, "2001:db8::/64"},
		{"2001:db8::1", 24, 0, "2001:db8::1"},
		{"2001:db8::1", 24, 128, "2001:db8::1/128"},
		{"fe80::1%eth0", 24, 64, "fe80::/64"},
		{"::ffff:10.1.2.3", 24, 64, "10.1.2.0/24"},
		{"::ffff:10.1.2.3", 0, 64, "::ffff:10.1.2.3"},
		{"shop-a", 24, 64, "shop-a"},
		{"10.1.2.3/32", 24, 64, "10.1.2.3/32"},
		{"10.1.2.3:80", 24, 64, "10.1.2.3:80"},
		{"", 24, 64, ""},
	}
	for _, test := range tests {
		require.Equal(t, test.want, maskKey(test.key, test.ipv4, test.ipv6), test)
	}
}

func TestJittered(t *testing.T) {
	t.Parallel()
	always := func(n float64) func() float64 { return func() float64 { return n } }
	require.Equal(t, 10*time.Second, jittered(10*time.Second, 0, always(0.5)))
	require.Equal(t, 10*time.Second, jittered(10*time.Second, 0.2, always(0)))
	require.Equal(t, 11*time.Second, jittered(10*time.Second, 0.2, always(0.5)))
	require.Equal(t, limit.Never, jittered(limit.Never, 0.2, always(0.5)))
	require.Zero(t, jittered(0, 0.2, always(0.5)))
	longest := jittered(limit.MaxWindow, 100, always(0.99))
	require.Positive(t, headers.WholeSeconds(longest), longest)
}

func TestRemoteIP(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"10.1.2.3:5000": "10.1.2.3", "[2001:db8::1]:5000": "2001:db8::1", "@": "@", "": "",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr
		require.Equal(t, want, remoteIP(r))
	}
}
