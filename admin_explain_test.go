package ratelimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// started is provision with an app that was started.
func started(t testing.TB, app, handler string) *Handler {
	t.Helper()
	h, err := provision(t, app, handler)
	require.NoError(t, err, "%s %s", app, handler)
	require.NoError(t, h.app.Start())
	t.Cleanup(func() {
		require.NoError(t, h.app.Stop())
		require.NoError(t, h.app.Cleanup())
	})
	return h
}

// asks calls a call of the admin API as its handler does.
func asks(app *App, path string, query url.Values) (any, error) {
	for _, call := range adminCalls() {
		if call.Path != path {
			continue
		}
		q, err := adminapi.ParseQuery(query.Encode(), call.Parameters)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), call.Within)
		defer cancel()
		return call.answer(ctx, app, q)
	}
	return nil, errors.New("no such call")
}

func explained(t testing.TB, app *App, query url.Values) adminapi.Handler {
	t.Helper()
	answer, err := asks(app, adminapi.ExplainPath, query)
	require.NoError(t, err)
	require.Len(t, answer.(*adminapi.Explain).Handlers, 1)
	return answer.(*adminapi.Explain).Handlers[0]
}

// got is what a client gets, as explain tells it.
type got struct {
	status          int
	remaining, wait string
	source          string
}

// serves sends a request through the handler.
func serves(t testing.TB, h *Handler, tenant, address string) got {
	t.Helper()
	repl, vars := caddy.NewReplacer(), map[string]any{caddyhttp.ClientIPVarKey: address}
	ctx := context.WithValue(context.Background(), caddy.ReplacerCtxKey, repl)
	ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, vars)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx)
	if tenant != "" {
		r.Header.Set("X-Api-Key", tenant)
	}
	w := httptest.NewRecorder()
	err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusOK)
		return nil
	}))
	result := got{status: http.StatusOK}
	if failed, ok := errors.AsType[caddyhttp.HandlerError](err); ok {
		result.status = failed.StatusCode
	}
	result.remaining, result.wait = w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After")
	result.source, _ = repl.GetString("http.rate_limit.source")
	return result
}

// foretold is what explain says that a client gets.
func foretold(next adminapi.Next) got {
	result := got{status: next.Status, source: next.Source}
	if next.Remaining != nil {
		result.remaining = strconv.FormatInt(*next.Remaining, 10)
	}
	if next.RetryAfter != nil {
		result.wait = strconv.FormatInt(*next.RetryAfter, 10)
	}
	return result
}

// randomConfig is an app and a handler with rules of every kind, so slow that
// nothing refills while a test runs.
func randomConfig(random *rand.Rand, redis string, tenants ...string) (app, handler string) {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	numbers := func() string {
		capacity := 1 + random.IntN(5)
		return fmt.Sprintf(`"capacity":%d,"refill_per_second":%g`, capacity, float64(capacity)/100_000)
	}
	option := func(name string, words ...string) string {
		if word := pick(append(words, "")...); word != "" {
			return fmt.Sprintf(`,%q:%q`, name, word)
		}
		return ""
	}
	algorithms := []string{"token_bucket", "sliding_window_log", "sliding_window_counter"}
	var rules []json.RawMessage
	for _, tenant := range append(tenants, "*", "~guest") {
		for _, route := range []string{"a", "b", "*"} {
			if random.IntN(3) == 0 {
				rules = append(rules, json.RawMessage(fmt.Sprintf(`{"tenant":%q,"route":%q,%s%s%s}`, tenant, route, numbers(),
					option("algorithm", algorithms...), option("mode", "enforce", "enforce", "enforce", "shadow", "unlimited", "deny"))))
			}
		}
	}
	rules = append(rules, json.RawMessage(`{"tenant":"known","route":"b","capacity":3,"refill_per_second":1}`)) // else unknown is refused
	static, _ := json.Marshal(rules)
	region := pick("", `,"region":{"name":"eu","share":0.5}`)
	app = fmt.Sprintf(`{"default":{%s},"guest_secret":"0123456789abcdef","static_rules":%s%s%s%s}`, numbers(), static, redis, region, option("fallback", "allow", "deny"))
	routes := pick(`["a"]`, `["a"]`, `["a","b"]`, `["b","a"]`)
	limits := pick(``, fmt.Sprintf(`,"limits":[{%s}]`, numbers()), fmt.Sprintf(`,"limits":[{"route":"a",%s}]`, numbers()))
	handler = fmt.Sprintf(`{"routes":%s%s%s%s%s,"cost":%q%s}`, routes, limits,
		option("guest", "deny", "allow", "ip", "ip"), option("unknown", "default", "guest", "deny"),
		option("algorithm", algorithms...), pick("1", "1", "2", "3"), pick("", `,"tenant_hashed":true`, `,"shadow":true`))
	return app, handler
}

// TestExplainIsWhatTheNextRequestGets compares what explain foretells with what the
// next request gets, over random rules, handlers, stores and states.
func TestExplainIsWhatTheNextRequestGets(t *testing.T) {
	redis := servertest.Redis(t)
	outcomes := map[string]int{}
	for seed := range uint64(90) {
		random := rand.New(rand.NewPCG(seed, 5))
		prefix := fmt.Sprintf(`"key_prefix":"p%d"`, seed)
		store := []string{
			``,
			`,"redis":{"urls":["` + redis.URL() + `"],"timeout":"5s",` + prefix + `}`,
			`,"instances":2,"redis":{"urls":["redis://` + servertest.FreeAddr(t) + `"],` + prefix + `}`,
		}[seed%3]
		// What is remembered without Redis is one for all of this process.
		one, two := fmt.Sprintf("one-%d", seed), fmt.Sprintf("two-%d", seed)
		app, handler := randomConfig(random, store, one, two)
		h := started(t, app, handler)
		for range 25 {
			tenant := []string{one, one, two, "made-up-" + two, ""}[random.IntN(5)]
			address := fmt.Sprintf("203.0.%d.%d", seed, random.IntN(2))
			began := time.Now()
			answer := explained(t, h.app, url.Values{"tenant": {tenant}, "ip": {address}, "route": {"a"}})
			want, real := foretold(answer.Next), serves(t, h, tenant, address)
			if want.status == 429 && time.Since(began) > 100*time.Millisecond {
				// What is remembered for a second may have run out in between.
				want.source, real.source = "", ""
			}
			require.Equal(t, want.status, real.status, "seed %d, %q\n%s\n%s\n%+v", seed, tenant, app, handler, answer)
			require.Equal(t, want.source, real.source, "seed %d, %q\n%s\n%s\n%+v", seed, tenant, app, handler, answer)
			require.Equal(t, want.remaining, real.remaining, "seed %d, %q\n%s\n%s\n%+v", seed, tenant, app, handler, answer)
			if want.wait != real.wait {
				foretold, _ := strconv.Atoi(want.wait)
				told, err := strconv.Atoi(real.wait)
				require.NoError(t, err, "seed %d: foretold %q, told %q", seed, want.wait, real.wait)
				require.InDelta(t, foretold, told, 2, "seed %d: a wait grows shorter", seed)
			}
			outcomes[answer.Next.Outcome+" "+answer.Next.Source]++
		}
	}
	t.Log(outcomes)
	for _, outcome := range []string{
		"granted redis", "granted local", "refused redis", "refused remembered", "refused local", "allowed none",
		"shadow redis", "unlimited ", "denied ", "unauthorized ", "allowed ",
	} {
		require.Positive(t, outcomes[outcome], "the states are of every kind: %s", outcome)
	}
}

// TestExplainTakesNothing asks many times and finds the bucket as it was.
func TestExplainTakesNothing(t *testing.T) {
	redis := servertest.Redis(t)
	h := started(t, `{"redis":{"urls":["`+redis.URL()+`"],"timeout":"5s"}}`, `{"limits":[{"capacity":3,"refill_per_second":0.001}]}`)
	query := url.Values{"tenant": {"t1"}, "route": {"default"}}
	for range 20 {
		require.Equal(t, int64(2), *explained(t, h.app, query).Next.Remaining)
	}
	keys, err := redis.Client(t).DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Zero(t, keys, "not even a key was made")
	require.Zero(t, h.app.memory.local.Len()+h.app.memory.refusals.Len()+h.app.memory.ahead.Len())
	for left := range 3 {
		require.Equal(t, strconv.Itoa(2-left), serves(t, h, "t1", "").remaining)
	}
	answer := explained(t, h.app, query)
	require.Equal(t, "refused", answer.Next.Outcome)
	require.Equal(t, int64(0), answer.Bucket.Redis.Remaining)
	require.Equal(t, []string{"rl:{t1}:default"}, answer.Bucket.Keys)
}

// TestExplainNames finds whose bucket a query names, in each kind of handler.
func TestExplainNames(t *testing.T) {
	const limits = `,"limits":[{"capacity":3,"refill_per_second":0.001}]`
	const hash = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8" // of "password"
	zone := `{"rate_limits":{"a b":{"key":"{http.request.remote.host}","window":"1h","max_events":3,"ipv4_prefix":24}}}`
	for name, test := range map[string]struct {
		handler, query, route string
		tenant, outcome       string
		note                  string
	}{
		"a tenant":                     {`{"routes":["a"]` + limits + `}`, "tenant=+t1+", "a", "t1", "granted", ""},
		"no tenant":                    {`{"routes":["a"]` + limits + `}`, "tenant=", "a", "~guest", "unauthorized", ""},
		"no tenant, allowed":           {`{"routes":["a"],"guest":"allow"` + limits + `}`, "ip=::1", "a", "~guest", "allowed", ""},
		"guests":                       {`{"routes":["a"],"guest":"ip"` + limits + `}`, "tenant=~guest", "a", "~guest", "unknown", adminapi.NoteGuest},
		"a guest":                      {`{"routes":["a"],"guest":"ip"` + limits + `}`, "ip=1.2.3.4", "a", "~ip-", "granted", ""},
		"a guest by its bucket":        {`{"routes":["a"],"guest":"ip"` + limits + `}`, "stored=~ip-" + hash, "a", "~ip-" + hash, "granted", ""},
		"a made-up key":                {`{"routes":["a"],"guest":"ip","unknown":"guest"` + limits + `}`, "tenant=x", "a", "~guest", "unknown", adminapi.NoteMadeUp},
		"a made-up key at an address":  {`{"routes":["a"],"guest":"ip","unknown":"guest"` + limits + `}`, "tenant=x&ip=1.2.3.4", "a", "~ip-", "granted", adminapi.NoteMadeUpGuest},
		"a made-up key that is denied": {`{"routes":["a"],"unknown":"deny"` + limits + `}`, "tenant=x", "a", "x", "unauthorized", ""},
		"a hashed tenant":              {`{"routes":["a"],"tenant_hashed":true` + limits + `}`, "tenant=password", "a", hash, "granted", adminapi.NoteHashed},
		"a hash":                       {`{"routes":["a"],"tenant_hashed":true` + limits + `}`, "stored=" + hash, "a", hash, "granted", ""},
		"a tenant too long for a key":  {`{"routes":["a"]` + limits + `}`, "stored=~sha256-" + hash, "a", "~sha256-" + hash, "granted", ""},
		"an address in a zone":         {zone, "ip=1.2.3.4", "a b", "1.2.3.0/24", "granted", adminapi.NoteZone},
		"a zone by its route":          {zone, "tenant=1.2.3.4", "a%20b", "1.2.3.0/24", "granted", adminapi.NoteZone},
		"a zone's blank key":           {zone, "tenant=", "a b", "~blank", "granted", adminapi.NoteZone},
		"a zone's blank key, stored":   {zone, "stored=~blank", "a b", "~blank", "granted", adminapi.NoteZone},
	} {
		t.Run(name, func(t *testing.T) {
			h := started(t, `{"guest_secret":"0123456789abcdef","static_rules":[{"tenant":"known","route":"a","capacity":3,"refill_per_second":1}]}`, test.handler)
			query, err := url.ParseQuery(test.query)
			require.NoError(t, err)
			query.Set("route", test.route)
			answer := explained(t, h.app, query)
			require.Contains(t, answer.Tenant, test.tenant)
			require.Equal(t, test.outcome, answer.Next.Outcome)
			require.Equal(t, test.note, answer.Note)
		})
	}
}

// TestExplainLikeHandlersOnce: many handlers of a route that come to the same are one
// answer, and one that differs is another.
func TestExplainLikeHandlersOnce(t *testing.T) {
	app := provisionMany(t, `{"default":{"capacity":3,"refill_per_second":0.001}}`,
		`{"routes":["a"]}`, `{"routes":["a"]}`, `{"routes":["a"],"cost":"2"}`, `{"routes":["b"]}`)
	answer, err := asks(app, adminapi.ExplainPath, url.Values{"tenant": {"t1"}, "route": {"a"}})
	require.NoError(t, err)
	handlers := answer.(*adminapi.Explain).Handlers
	require.Len(t, handlers, 2)
	require.Equal(t, []int{2, 1}, []int{handlers[0].Handlers, handlers[1].Handlers})
	require.Equal(t, []int64{2, 1}, []int64{*handlers[0].Next.Remaining, *handlers[1].Next.Remaining})
}

// provisionMany makes handlers of one config.
func provisionMany(t testing.TB, app string, handlers ...string) *App {
	t.Helper()
	ctx, err := provisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{appName: json.RawMessage(app)}})
	require.NoError(t, err)
	ctx, cancel := caddy.NewContext(ctx)
	t.Cleanup(cancel)
	for _, handler := range handlers {
		_, err := ctx.LoadModuleByID("http.handlers.rate_limit", json.RawMessage(handler))
		require.NoError(t, err)
	}
	loaded, err := ctx.App(appName)
	require.NoError(t, err)
	return loaded.(*App)
}

// TestExplainWhereRulesComeFrom lists every place in the order in which they count.
func TestExplainWhereRulesComeFrom(t *testing.T) {
	h := started(t, `{"default":{"capacity":9,"refill_per_second":1},"static_rules":[
		{"tenant":"t1","route":"*","capacity":2,"refill_per_second":1,"mode":"shadow"},
		{"tenant":"*","route":"a","capacity":3,"refill_per_second":1}]}`,
		`{"routes":["a"],"algorithm":"sliding_window_counter","limits":[{"capacity":4,"refill_per_second":1}]}`)
	type place struct {
		from, tenant, route string
		exists, wins        bool
	}
	list := func(tenant string) (places []place) {
		for _, c := range explained(t, h.app, url.Values{"tenant": {tenant}, "route": {"a"}}).Candidates {
			places = append(places, place{c.From, c.Tenant, c.Route, c.Exists, c.Wins})
		}
		return places
	}
	require.Equal(t, []place{
		{"static", "t1", "a", false, false},
		{"static", "t1", "*", true, true},
		{"static", "*", "a", true, false},
		{"static", "*", "*", false, false},
		{"handler", "", "", true, false},
		{"default", "", "", true, false},
	}, list("t1"))
	require.Equal(t, []place{
		{"static", "*", "a", true, true},
		{"static", "*", "*", false, false},
		{"handler", "", "", true, false},
		{"default", "", "", true, false},
	}, list("*"), "a header that says * has no rows of its own")
	answer := explained(t, h.app, url.Values{"tenant": {"t1"}, "route": {"a"}})
	require.Equal(t, "static", answer.RuleFrom)
	require.Equal(t, adminapi.Numbers{
		Capacity: 2, RefillPerSecond: 1, Algorithm: limit.SlidingWindowCounter.String(), Mode: "shadow", Prefetch: 0, Shards: 1,
	}, *answer.Rule, "what the rule came to, with what the handler adds")
}
