package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/limit"
)

// provisioning is held while a configuration is provisioned: Caddy notes the last
// one in a variable of its own, without a lock.
var provisioning sync.Mutex

func provisionContext(config *caddy.Config) (caddy.Context, error) {
	provisioning.Lock()
	defer provisioning.Unlock()
	return caddy.ProvisionContext(config)
}

// provision makes a handler of its JSON, in a config with the app's.
func provision(t testing.TB, app, handler string) (*Handler, error) {
	t.Helper()
	config := &caddy.Config{AppsRaw: caddy.ModuleMap{appName: json.RawMessage(app)}}
	ctx, err := provisionContext(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := caddy.NewContext(ctx)
	t.Cleanup(cancel)
	module, err := ctx.LoadModuleByID("http.handlers.rate_limit", json.RawMessage(handler))
	if err != nil {
		return nil, err
	}
	return module.(*Handler), nil
}

// TestJSON holds JSON that must be refused, with its field.
func TestJSON(t *testing.T) {
	tests := map[string]struct{ app, handler, want string }{
		"unknown field":            {`{}`, `{"capcity":5}`, "capcity"},
		"unknown app field":        {`{"capcity":5}`, `{}`, "capcity"},
		"no limit at all":          {`{}`, `{}`, "has no rule that every tenant falls back to"},
		"unknown guest":            {`{}`, `{"guest":"x","limits":[{"capacity":1,"refill_per_second":1}]}`, "guest"},
		"unknown headers":          {`{}`, `{"headers":"x","limits":[{"capacity":1,"refill_per_second":1}]}`, "headers"},
		"unknown app headers":      {`{"headers":"x"}`, `{}`, "headers: unknown word"},
		"unknown reset":            {`{"reset":"x"}`, `{}`, "reset: unknown word"},
		"unknown algorithm":        {`{}`, `{"algorithm":"x","limits":[{"capacity":1,"refill_per_second":1}]}`, "unknown algorithm"},
		"capacity 0":               {`{}`, `{"limits":[{"refill_per_second":1}]}`, "limits[0]: capacity 0"},
		"refill 0":                 {`{}`, `{"limits":[{"capacity":1}]}`, "limits[0]: refill_per_second 0"},
		"other route":              {`{}`, `{"limits":[{"route":"b","capacity":1,"refill_per_second":1}]}`, "limits[0].route"},
		"two limits":               {`{}`, `{"limits":[{"capacity":1,"refill_per_second":1},{"capacity":2,"refill_per_second":1}]}`, "limits[1]"},
		"bad route":                {`{}`, `{"routes":["a/b"],"limits":[{"capacity":1,"refill_per_second":1}]}`, "routes"},
		"route twice":              {`{}`, `{"routes":["a","a"],"limits":[{"capacity":1,"refill_per_second":1}]}`, "twice"},
		"one route without":        {`{}`, `{"routes":["a","b"],"limits":[{"route":"a","capacity":1,"refill_per_second":1}]}`, "route \"b\" has no rule"},
		"log over its bound":       {`{}`, `{"algorithm":"sliding_window_log","limits":[{"capacity":100001,"refill_per_second":1}]}`, "limits[0]: capacity"},
		"prefix":                   {`{}`, `{"ipv6_prefix":129,"limits":[{"capacity":1,"refill_per_second":1}]}`, "ipv6_prefix"},
		"cost":                     {`{}`, `{"cost":"x","limits":[{"capacity":1,"refill_per_second":1}]}`, "cost"},
		"prefetch of two routes":   {`{}`, `{"routes":["a","b"],"prefetch":5,"limits":[{"capacity":1,"refill_per_second":1}]}`, "one route"},
		"prefetch with a cost":     {`{}`, `{"cost":"2","prefetch":"auto","limits":[{"capacity":1,"refill_per_second":1}]}`, "cost 1"},
		"prefetch and shards":      {`{}`, `{"shards":2,"prefetch":"auto","limits":[{"capacity":1,"refill_per_second":1}]}`, "together with prefetch"},
		"shards of a log":          {`{}`, `{"shards":2,"algorithm":"sliding_window_log","limits":[{"capacity":1,"refill_per_second":1}]}`, "token bucket"},
		"shards 17":                {`{}`, `{"shards":17,"limits":[{"capacity":1,"refill_per_second":1}]}`, "shards: 17"},
		"prefetch true":            {`{}`, `{"prefetch":true,"limits":[{"capacity":1,"refill_per_second":1}]}`, "prefetch"},
		"static prefetch":          {`{"static_rules":[{"tenant":"a","route":"b","capacity":1,"refill_per_second":1,"prefetch":"x"}]}`, `{}`, "static_rules[0].prefetch"},
		"static shards":            {`{"static_rules":[{"tenant":"a","route":"b","capacity":1,"refill_per_second":1,"shards":17}]}`, `{}`, "static_rules[0].shards"},
		"large cost on a log":      {`{}`, `{"algorithm":"sliding_window_log","cost":"401","limits":[{"capacity":5000,"refill_per_second":1}]}`, "cost: 401"},
		"large cost on two logs":   {`{}`, `{"routes":["a","b"],"algorithm":"sliding_window_log","cost":"201","limits":[{"capacity":5000,"refill_per_second":1}]}`, "which is 200"},
		"shorthand in JSON":        {`{}`, `{"tenant":"{header.X-Api-Key}","limits":[{"capacity":1,"refill_per_second":1}]}`, "shorthand"},
		"brace without an end":     {`{}`, `{"tenant":"{http.request.header.X","limits":[{"capacity":1,"refill_per_second":1}]}`, "counterpart"},
		"default with a route":     {`{"default":{"route":"a","capacity":1,"refill_per_second":1}}`, `{}`, "default.route"},
		"breaker off and open":     {`{"redis":{"urls":["redis://a"],"breaker":{"failures":-1,"open":"1m"}}}`, `{}`, "redis.breaker.open"},
		"tls on a unix socket":     {`{"redis":{"urls":["unix:///x"],"tls":{}}}`, `{}`, "redis.tls"},
		"tenant with a space":      {`{"static_rules":[{"tenant":" a","route":"b","capacity":1,"refill_per_second":1}]}`, `{}`, "static_rules[0].tenant"},
		"tenant too long":          {`{"static_rules":[{"tenant":"` + fmt.Sprintf("%065d", 0) + `","route":"b","capacity":1,"refill_per_second":1}]}`, `{}`, "static_rules[0]"},
		"tenant from env":          {`{"static_rules":[{"tenant":"{env.X}","route":"b","capacity":1,"refill_per_second":1}]}`, `{}`, "placeholders are not replaced"},
		"guests need a secret":     {`{"redis":{"urls":["redis://a"]}}`, `{"guest":"ip","limits":[{"capacity":1,"refill_per_second":1}]}`, "guest_secret"},
		"instances 0":              {`{"instances":0}`, `{}`, "instances: 0 is out of bounds"},
		"auto without redis":       {`{"instances_auto":true,"instances":3}`, `{}`, "instances_auto: the gateways count themselves in Redis"},
		"auto without a number":    {`{"instances_auto":true,"redis":{"urls":["redis://localhost"]}}`, `{}`, "instances: beside instances_auto it is needed"},
		"auto with 0":              {`{"instances_auto":true,"instances":0,"redis":{"urls":["redis://localhost"]}}`, `{}`, "instances: 0 is out of bounds"},
		"timeout":                  {`{"redis":{"urls":["redis://a"],"timeout":1}}`, `{}`, "redis.timeout"},
		"no url":                   {`{"redis":{}}`, `{}`, "redis.urls"},
		"bad url":                  {`{"redis":{"urls":["http://a"]}}`, `{}`, "redis"},
		"breaker":                  {`{"redis":{"urls":["redis://a"],"breaker":{"failures":1001}}}`, `{}`, "redis.breaker.failures"},
		"missing ca":               {`{"redis":{"urls":["redis://a"],"tls":{"ca_file":"/nowhere"}}}`, `{}`, "tls ca"},
		"key_prefix":               {`{"redis":{"urls":["redis://a"],"key_prefix":"{"}}`, `{}`, "redis.key_prefix"},
		"no dsn":                   {`{"rules":{}}`, `{}`, "rules.dsn"},
		"long channel":             {`{"rules":{"dsn":"postgres://a/b","channel":"` + fmt.Sprintf("%064d", 0) + `"}}`, `{}`, "channel"},
		"refresh":                  {`{"rules":{"dsn":"postgres://a/b","refresh":1}}`, `{}`, "rules.refresh"},
		"static rule out of bound": {`{"static_rules":[{"tenant":"a","route":"b","capacity":-1,"refill_per_second":1}]}`, `{}`, "static_rules[0]: capacity -1"},
		"static rule for nobody":   {`{"static_rules":[{"route":"b","capacity":1,"refill_per_second":1}]}`, `{}`, "static_rules[0]"},
		"static rule twice":        {`{"static_rules":[{"tenant":"a","route":"b","capacity":1,"refill_per_second":1},{"tenant":"a","route":"b","capacity":2,"refill_per_second":1}]}`, `{}`, "static_rules"},
		"static rule mode":         {`{"static_rules":[{"tenant":"a","route":"b","capacity":1,"refill_per_second":1,"mode":"x"}]}`, `{}`, "unknown mode"},
		"unset placeholder":        {`{"redis":{"urls":["{env.RL_NOT_SET}"]}}`, `{}`, "redis.urls[0]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := provision(t, test.app, test.handler)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// told is an answer about one bucket.
func told(capacity int64, outcome outcome, state limit.State) *verdict {
	a := new(verdict)
	a.add(charge{
		zone: &zone{name: "a"}, bucket: limit.Bucket{Rule: limit.Rule{Capacity: capacity}},
		outcome: outcome, source: limit.SourceLocal, state: state,
	})
	return a
}

// TestSettle sees our fields win over those of an upstream, after an interim
// response too.
func TestSettle(t *testing.T) {
	w := quiet{http.Header{}}
	a := told(5, outcomeGranted, limit.State{Remaining: 4, ResetAfter: 1500 * time.Millisecond})
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	a.showNearest(0, headerStyle{legacy: true})
	err := a.pass(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Add("X-RateLimit-Limit", "9")
		w.Header().Add("X-RateLimit-Remaining", "9")
		w.WriteHeader(http.StatusEarlyHints)
		clear(w.Header())
		w.Header().Add("X-RateLimit-Limit", "9")
		_, err := io.Copy(w, strings.NewReader("x"))
		return err
	}))
	require.NoError(t, err)
	require.Equal(t, []string{"5"}, w.header.Values("X-RateLimit-Limit"))
	require.Equal(t, []string{"4"}, w.header.Values("X-RateLimit-Remaining"))
	require.Equal(t, []string{"2"}, w.header.Values("X-RateLimit-Reset"))
}

// TestRetryAfterIsExact rounds up, and never to 0. What can never pass has none.
func TestRetryAfterIsExact(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", 40 * time.Second: "40", limit.Never: "",
	} {
		w := httptest.NewRecorder()
		a := told(5, outcomeRefused, limit.State{RetryAfter: wait})
		require.Error(t, a.refuse(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), a.violated(0), headerStyle{legacy: true}))
		require.Equal(t, want, w.Header().Get("Retry-After"), wait)
	}
}

// quiet is a response writer that keeps nothing.
type quiet struct{ header http.Header }

func (q quiet) Header() http.Header { return q.header }

func (q quiet) Write(p []byte) (int, error) { return len(p), nil }

func (q quiet) WriteHeader(int) {}

// BenchmarkServeHTTP is the handler alone, in memory. The cost of the request
// that it is handed is measured by "bare", and is to be taken off.
func BenchmarkServeHTTP(b *testing.B) {
	next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusOK)
		return nil
	})
	handler, err := provision(b, `{}`, `{"limits":[{"capacity":1000,"refill_per_second":1000000}]}`)
	require.NoError(b, err)
	large, err := provision(b, `{}`, `{"routes":["large"],"limits":[{"capacity":2000000000,"refill_per_second":1000000}]}`)
	require.NoError(b, err)
	refusing, err := provision(b, `{}`, `{"routes":["none"],"limits":[{"capacity":1,"refill_per_second":0.0001}]}`)
	require.NoError(b, err)
	serve := map[string]func(w http.ResponseWriter, r *http.Request) error{
		"bare": next.ServeHTTP,
		"granted": func(w http.ResponseWriter, r *http.Request) error {
			_ = handler.ServeHTTP(w, r, next) // one tenant may be faster than its limit
			return nil
		},
		"granted, large numbers": func(w http.ResponseWriter, r *http.Request) error { return large.ServeHTTP(w, r, next) },
		"refused": func(w http.ResponseWriter, r *http.Request) error {
			_ = refusing.ServeHTTP(w, r, next)
			return nil
		},
	}
	for _, what := range []string{"bare", "granted", "granted, large numbers", "refused"} {
		for _, tenants := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%s/%d tenants", what, tenants), func(b *testing.B) {
				keys := make([][]string, tenants)
				for i := range keys {
					keys[i] = []string{fmt.Sprintf("tenant-%d", i)}
				}
				vars := map[string]any{}
				ctx := context.WithValue(context.Background(), caddy.ReplacerCtxKey, caddy.NewReplacer())
				ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, vars)
				r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx)
				w := quiet{http.Header{}}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r.Header["X-Api-Key"] = keys[i%tenants]
					delete(vars, verdictKey)
					if i%1024 == 0 { // providers pile up in a replacer that is never renewed
						ctx = context.WithValue(context.Background(), caddy.ReplacerCtxKey, caddy.NewReplacer())
						r = r.WithContext(context.WithValue(ctx, caddyhttp.VarsCtxKey, vars))
					}
					if err := serve[what](w, r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// failing is a matcher that cannot tell.
type failing struct{}

func (failing) MatchWithError(*http.Request) (bool, error) { return false, errors.New("cannot tell") }

// TestZ5MatcherThatErrs: a zone whose matcher fails does not limit the request,
// which is told once, and the zones beside it do.
func TestZ5MatcherThatErrs(t *testing.T) {
	zones := func(names ...string) string {
		const zone = `"%s":{"key":"{http.request.header.X-Api-Key}","window":"1000s","max_events":%d}`
		texts := make([]string, len(names))
		for i, name := range names {
			texts[i] = fmt.Sprintf(zone, name, 9-i) // asked in this order
		}
		return `{"rate_limits":{` + strings.Join(texts, ",") + `}}`
	}
	before, err := provision(t, `{}`, zones("before"))
	require.NoError(t, err)
	fails, err := provision(t, `{}`, zones("both", "fails"))
	require.NoError(t, err)
	after, err := provision(t, `{}`, zones("both"))
	require.NoError(t, err)
	require.Equal(t, "fails", fails.zones[1].name)
	fails.zones[1].match = caddyhttp.MatcherSets{{failing{}}}
	core, logs := observer.New(zap.WarnLevel)
	fails.zones[1].logger = zap.New(core)

	ctx := context.WithValue(t.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer())
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx)
	r.Header.Set("X-Api-Key", "t1")
	ok := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	serve := func(h *Handler) error { return h.ServeHTTP(quiet{http.Header{}}, r, ok) }
	require.NoError(t, serve(before))
	require.NoError(t, serve(fails))
	require.Len(t, verdictOf(r).charges, 2, "the zone beside it limits")
	require.Equal(t, outcomeGranted, verdictOf(r).charges[1].outcome)
	require.NoError(t, serve(fails))
	require.NoError(t, serve(after))
	require.Len(t, verdictOf(r).charges, 2, "each bucket once")
	require.Equal(t, 1, logs.FilterMessageSnippet("matcher of the zone has failed").FilterField(zap.String("zone", "fails")).Len())
}

// TestRefusalIsNeverLost refuses also where no state says that a bucket refused.
func TestRefusalIsNeverLost(t *testing.T) {
	a := new(verdict)
	a.add(charge{zone: &zone{name: "shadow"}, bucket: limit.Bucket{Rule: limit.Rule{Mode: limit.Shadow}}})
	a.add(charge{zone: &zone{name: "a"}})
	a.add(charge{zone: &zone{name: "b"}})
	noteEnforced(a.charges, limit.Decision{Source: limit.SourceRedis, Rest: make([]limit.State, 1)})
	require.Equal(t, 1, a.violated(0))
}
