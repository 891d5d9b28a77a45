package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/limit"
)

// service is what stands behind the handler.
type service func(w http.ResponseWriter, r *http.Request) error

func says(status int, header map[string]string, body string) service {
	return func(w http.ResponseWriter, _ *http.Request) error {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, err := io.WriteString(w, body)
		return err
	}
}

// call sends a request through a handler to a service.
func call(t *testing.T, h *Handler, next service, change ...func(*http.Request) *http.Request) (w *httptest.ResponseRecorder, err error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-Api-Key", "t")
	r.Header.Set("Accept-Encoding", "gzip")
	for _, f := range change {
		r = f(r)
	}
	w = httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
	return w, h.ServeHTTP(w, r, caddyhttp.HandlerFunc(next))
}

// left is what the tenant's bucket holds now.
func left(t *testing.T, h *Handler) int64 {
	t.Helper()
	key := routeKey("t", h.zones[0].route)
	d, err := h.app.limiter.Take(t.Context(), lookAt(key, h.zones[0].fallback))
	require.NoError(t, err)
	return d.First.Remaining
}

// TestCharges: what an answer costs, and what it costs where it does not say it. Each
// takes 5 of 100 at its start.
func TestCharges(t *testing.T) {
	json := map[string]string{"Content-Type": "application/json"}
	usage := says(200, json, `{"usage":{"in":7,"out":5}}`)
	stream := map[string]string{"Content-Type": "text/event-stream"}
	cut := func(w http.ResponseWriter, r *http.Request) error {
		_ = usage(w, r)
		panic(http.ErrAbortHandler)
	}
	gone := func(r *http.Request) *http.Request {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		return r.WithContext(ctx)
	}
	head := func(r *http.Request) *http.Request { r.Method = http.MethodHead; return r }
	nothing := service(func(http.ResponseWriter, *http.Request) error { return nil })
	for i, test := range []struct {
		name   string
		charge string
		next   service
		change func(*http.Request) *http.Request
		want   int64
	}{
		{"a status that counts", `{"status":["401","403"]}`, says(401, nil, ""), nil, 5},
		{"a status that does not", `{"status":["401","403"]}`, says(200, nil, ""), nil, 0},
		{"a class", `{"status":["4xx"]}`, says(404, nil, ""), nil, 5},
		{"all but a class", `{"status":["!5xx"]}`, says(200, nil, ""), nil, 5},
		{"a class that is left out", `{"status":["!5xx"]}`, says(502, nil, ""), nil, 0},
		{"an error's status", `{"status":["401"]}`, func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(401, errors.New("x")) }, nil, 5},
		{"an error without one", `{"status":["5xx"]}`, func(http.ResponseWriter, *http.Request) error { return errors.New("x") }, nil, 5},
		{"nothing written", `{"status":["200"]}`, nothing, nil, 5},
		{"hints first", `{"status":["200"]}`, func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(103); w.WriteHeader(404); return nil }, nil, 0},
		{"client gone, nothing written", `{"status":["401"]}`, nothing, gone, 5},
		{"499", `{"status":["401"]}`, func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(499, context.Canceled) }, nil, 5},
		{"499 as an answer", `{"status":["401"]}`, says(499, nil, ""), nil, 5},
		{"499 as an answer, by a header", `{"header":"X-Cost"}`, says(499, map[string]string{"X-Cost": "0"}, ""), nil, 5},
		{"client gone, an error", `{"status":["401"]}`, func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(502, errors.New("x")) }, gone, 5},
		{"panic before the header", `{"status":["401"]}`, func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }, nil, 5},
		{"a header", `{"header":"X-Cost"}`, says(200, map[string]string{"X-Cost": "17"}, ""), nil, 17},
		{"a header of 0", `{"header":"x-cost"}`, says(200, map[string]string{"X-Cost": "0"}, ""), nil, 0},
		{"no header", `{"header":"X-Cost"}`, says(200, nil, ""), nil, 5},
		{"no header, unread", `{"header":"X-Cost","unread":30}`, says(200, nil, ""), nil, 30},
		{"a header that is no number", `{"header":"X-Cost","unread":30}`, says(200, map[string]string{"X-Cost": "1e9"}, ""), nil, 30},
		{"a negative header", `{"header":"X-Cost","unread":30}`, says(200, map[string]string{"X-Cost": "-5"}, ""), nil, 30},
		{"json", `{"json":["usage.in","usage.out*2"]}`, usage, nil, 17},
		{"json of another type", `{"json":["usage.in"],"unread":30}`, says(200, map[string]string{"Content-Type": "text/html"}, `{"usage":{"in":7}}`), nil, 30},
		{"json that is compressed", `{"json":["usage.in"],"unread":30}`, says(200, map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, `{"usage":{"in":7}}`), nil, 30},
		{"json without its number", `{"json":["usage.total"],"unread":30}`, usage, nil, 30},
		{"json cut short", `{"json":["usage.in"]}`, cut, nil, 7},
		{"a stream", `{"json":["usage.in"]}`, says(200, stream, "data: {\"usage\":{\"in\":2}}\n\ndata: {\"usage\":{\"in\":9}}\n\n"), nil, 9},
		{"a stream without its number", `{"json":["usage.in"],"unread":1}`, says(200, stream, strings.Repeat("data: {}\n\n", 8)), nil, 8},
		{
			"a stream that its client leaves before the last number", `{"json":["usage.in"]}`,
			says(200, stream, "data: {\"usage\":{\"in\":2}}\n\n"+strings.Repeat("data: {}\n\n", 20)), gone, 21,
		},
		{"bytes", `{"bytes":10}`, says(200, nil, strings.Repeat("x", 101)), nil, 11},
		{"bytes by Content-Length", `{"bytes":10}`, says(200, map[string]string{"Content-Length": "25"}, strings.Repeat("x", 25)), nil, 3},
		{"bytes of HEAD", `{"bytes":10}`, says(200, map[string]string{"Content-Length": "25"}, ""), head, 0},
		{"bytes of 304", `{"bytes":10}`, says(304, map[string]string{"Content-Length": "25"}, ""), nil, 0},
		{"bytes cut short", `{"bytes":1}`, cut, nil, 26},
		{"bytes of a file", `{"bytes":10}`, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 55)))
			return err
		}, nil, 6},
		{"a value", `{"value":"{http.vars.cost}"}`, func(w http.ResponseWriter, r *http.Request) error {
			caddyhttp.SetVar(r.Context(), "cost", 12)
			w.WriteHeader(200)
			return nil
		}, nil, 12},
		{"a value that is none", `{"value":"{http.vars.cost}","unread":9}`, nothing, nil, 9},
		{"debt", `{"header":"X-Cost"}`, says(200, map[string]string{"X-Cost": "150"}, ""), nil, 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := provision(t, `{}`, fmt.Sprintf(`{"routes":["charge-%d"],"cost":"5","charge":[%s],"limits":[{"capacity":100,"refill_per_second":0.0001}]}`, i, test.charge))
			require.NoError(t, err)
			require.EqualValues(t, 100, left(t, h))
			if test.change == nil {
				test.change = func(r *http.Request) *http.Request { return r }
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = call(t, h, test.next, test.change)
			}()
			require.Equal(t, 100-test.want, left(t, h))
		})
	}
}

// TestUnreadCostIsLogged: one line for each, at debug, of what a header says.
func TestUnreadCostIsLogged(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["unread"],"cost":"5","charge":[{"header":"X-Cost"}],"limits":[{"capacity":100,"refill_per_second":0.0001}]}`)
	require.NoError(t, err)
	core, lines := observer.New(zap.DebugLevel)
	h.logger = zap.New(core)
	for _, said := range []string{"1e9", "-5", "abc", strings.Repeat("9", 30), strings.Repeat("9", 300), "9007199254740993"} {
		_, err = call(t, h, says(200, map[string]string{"X-Cost": said}, ""))
		require.NoError(t, err)
		require.Equal(t, 1, lines.Len(), said)
		line := lines.TakeAll()[0].ContextMap()
		require.Equal(t, unreadInvalid, line["reason"])
		require.EqualValues(t, 5, line["charged"])
		require.Less(t, len(line["said"].(string)), 80)
		require.Equal(t, said[:min(len(said), 64)], strings.TrimSuffix(line["said"].(string), "…"))
	}
}

// TestStreamSettledWhileItPasses: what has passed for long is settled before the end,
// which may say another number.
func TestStreamSettledWhileItPasses(t *testing.T) {
	for i, test := range []struct {
		charge, kind string
		parts        [2]string
		during, want int64 // charged after the first part, and in all
	}{
		{`{"json":["n"]}`, "text/event-stream", [2]string{strings.Repeat("data: {}\n\n", 7), "data: {\"n\":30}\n\n"}, 7, 30},
		{`{"json":["n"]}`, "text/event-stream", [2]string{"data: {\"n\":20}\n\n", "data: {\"n\":8}\n\n"}, 20, 8},
		{`{"json":["n"]}`, "text/event-stream", [2]string{strings.Repeat("data: {}\n\n", 7), "data: {}\n\n"}, 7, 8},
		{`{"json":["n"],"unread":40}`, "text/event-stream", [2]string{strings.Repeat("data: {}\n\n", 7), "data: {}\n\n"}, 7, 40},
		{`{"json":["n"]}`, "application/x-ndjson", [2]string{"{\"n\":9}\n", "{\"n\":12}\n"}, 9, 12},
		{`{"json":["n"]}`, "text/event-stream", [2]string{"data: {}\n\n", "data: {}\n\n"}, 5, 5},
		{`{"bytes":2}`, "text/plain", [2]string{strings.Repeat("x", 30), "xx"}, 15, 16},
	} {
		h, err := provision(t, `{}`, fmt.Sprintf(`{"routes":["passes-%d"],"cost":"5","charge":[%s],"limits":[{"capacity":100,"refill_per_second":0.0001}]}`, i, test.charge))
		require.NoError(t, err)
		_, err = call(t, h, func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", test.kind)
			answerOf(t, w).latest = time.Now().Add(-settleEvery - time.Millisecond)
			_, _ = io.WriteString(w, test.parts[0])
			if got := left(t, h); got != 100-test.during {
				t.Errorf("%d are left after the first part of %+v", got, test)
			}
			_, err := io.WriteString(w, test.parts[1])
			return err
		})
		require.NoError(t, err)
		require.Equal(t, 100-test.want, left(t, h), "after all of %+v", test)
	}
}

// answerOf is the writer that settles, below those that a handler is given.
func answerOf(t *testing.T, w http.ResponseWriter) *answer {
	t.Helper()
	for {
		if a, found := w.(*answer); found {
			return a
		}
		below, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		require.True(t, wraps, "%T", w)
		w = below.Unwrap()
	}
}

// TestChargeKeepsCompressionAway: nobody behind compresses an answer that is read.
func TestChargeKeepsCompressionAway(t *testing.T) {
	for charge, want := range map[string]string{`{"json":["a"]}`: "", `{"bytes":1}`: "gzip", `{"status":["401"]}`: "gzip"} {
		h, err := provision(t, `{}`, `{"routes":["gzip"],"charge":[`+charge+`],"limits":[{"capacity":100,"refill_per_second":1}]}`)
		require.NoError(t, err)
		got := ""
		_, err = call(t, h, func(_ http.ResponseWriter, r *http.Request) error {
			got = r.Header.Get("Accept-Encoding")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, want, got, charge)
	}
}

// TestChargeOfSeveralRoutes: requests and tokens in one handler, all or nothing.
func TestChargeOfSeveralRoutes(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["several-requests","several-tokens"],"costs":[{"route":"several-tokens","cost":"50"}],
		"charge":[{"route":"several-tokens","header":"X-Cost"}],
		"limits":[{"route":"several-requests","capacity":10,"refill_per_second":0.0001},{"route":"several-tokens","capacity":100,"refill_per_second":0.0001}]}`)
	require.NoError(t, err)
	look := func() [2]int64 {
		var got [2]int64
		for i, z := range h.zones {
			d, err := h.app.limiter.Take(t.Context(), lookAt(routeKey("t", z.route), z.fallback))
			require.NoError(t, err)
			got[i] = d.First.Remaining
		}
		return got
	}
	_, err = call(t, h, says(200, map[string]string{"X-Cost": "20"}, ""))
	require.NoError(t, err)
	require.Equal(t, [2]int64{9, 80}, look())
	_, err = call(t, h, says(200, map[string]string{"X-Cost": "70"}, ""))
	require.NoError(t, err)
	require.Equal(t, [2]int64{8, 10}, look())
	_, err = call(t, h, says(200, nil, ""))
	require.Error(t, err, "a reservation of 50 is not there")
	require.Equal(t, [2]int64{8, 10}, look(), "and nothing is taken of the other")
}

// TestReservationAboveTheCapacity takes the whole capacity.
func TestReservationAboveTheCapacity(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["reserve"],"cost":"500","charge":[{"header":"X-Cost"}],"limits":[{"capacity":100,"refill_per_second":0.0001}]}`)
	require.NoError(t, err)
	_, err = call(t, h, says(200, map[string]string{"X-Cost": "30"}, ""))
	require.NoError(t, err)
	require.EqualValues(t, 70, left(t, h))
}

// TestBanOfGuessers: who fails too often stays out, and whose requests only meet does
// not.
func TestBanOfGuessers(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["login"],"charge":[{"status":["401"]}],"ban":{"for":"1h","status":403},"limits":[{"capacity":5,"refill_per_second":0.01}]}`)
	require.NoError(t, err)
	right, wrong := says(200, nil, ""), says(401, nil, "")
	for range 50 {
		w, err := call(t, h, right)
		require.NoError(t, err)
		require.Equal(t, 200, w.Code)
	}
	// Five at once leave no room for a sixth, which is refused for a moment.
	inside, release := make(chan struct{}), make(chan struct{})
	for range 5 {
		go func() {
			_, _ = call(t, h, func(w http.ResponseWriter, _ *http.Request) error {
				inside <- struct{}{}
				<-release
				w.WriteHeader(200)
				return nil
			})
		}()
	}
	for range 5 {
		<-inside
	}
	w, err := call(t, h, right)
	require.Equal(t, 429, statusOf(err))
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	close(release)
	require.Eventually(t, func() bool { return left(t, h) == 5 }, 10*time.Second, time.Millisecond)

	for range 5 {
		w, err := call(t, h, wrong)
		require.NoError(t, err)
		require.Equal(t, 401, w.Code)
	}
	for range 3 {
		w, err = call(t, h, right)
		require.Equal(t, 403, statusOf(err))
		require.Equal(t, "3600", w.Header().Get("Retry-After"))
	}
	var seen int
	h.app.bans.list(time.Now(), func(limit.Key, ban) { seen++ })
	require.Equal(t, 1, seen)
	require.NoError(t, h.app.limiter.Reset(t.Context(), routeKey("t", "login")))
	w, err = call(t, h, right)
	require.NoError(t, err)
	require.Equal(t, 200, w.Code)
}

func statusOf(err error) int {
	if failed, found := errors.AsType[caddyhttp.HandlerError](err); found {
		return failed.StatusCode
	}
	return 0
}

// TestBanWithoutCharge: the first refusal begins it.
func TestBanWithoutCharge(t *testing.T) {
	h, err := provision(t, `{}`, `{"routes":["flood"],"ban":{"for":"10m"},"limits":[{"capacity":2,"refill_per_second":100}]}`)
	require.NoError(t, err)
	for range 2 {
		_, err = call(t, h, says(200, nil, ""))
	}
	for err == nil {
		_, err = call(t, h, says(200, nil, ""))
	}
	time.Sleep(50 * time.Millisecond) // five tokens are back
	w, err := call(t, h, says(200, nil, ""))
	require.Equal(t, 429, statusOf(err))
	require.Equal(t, "600", w.Header().Get("Retry-After"))
}

func TestChargesRefused(t *testing.T) {
	limits := `"limits":[{"capacity":5,"refill_per_second":1}]`
	for name, test := range map[string]struct{ handler, want string }{
		"two kinds":          {`{"charge":[{"status":["401"],"bytes":5}],` + limits + `}`, "one of status, header, json, bytes and value"},
		"no kind":            {`{"charge":[{"unread":5}],` + limits + `}`, "one of status, header, json, bytes and value"},
		"no path":            {`{"charge":[{"json":["a..b"]}],` + limits + `}`, "is no path"},
		"status 600":         {`{"charge":[{"status":["600"]}],` + limits + `}`, "is no status"},
		"status 499":         {`{"charge":[{"status":["499"]}],` + limits + `}`, "499 is no answer"},
		"a constant":         {`{"charge":[{"value":"5"}],` + limits + `}`, "a placeholder is needed"},
		"with prefetch":      {`{"charge":[{"status":["401"]}],"prefetch":"auto",` + limits + `}`, "do not go together with prefetch or shards"},
		"with shards":        {`{"ban":{"for":"1m"},"shards":4,` + limits + `}`, "do not go together with prefetch or shards"},
		"json on a log":      {`{"charge":[{"json":["a"]}],"algorithm":"sliding_window_log",` + limits + `}`, "takes `charge status` only"},
		"twice":              {`{"charge":[{"status":["401"]},{"bytes":1}],` + limits + `}`, "is given twice"},
		"another route":      {`{"charge":[{"status":["401"],"route":"x"}],` + limits + `}`, "is not a route of this handler"},
		"a short ban":        {`{"ban":{"for":"500ms"},` + limits + `}`, "ban.for"},
		"a long ban":         {`{"ban":{"for":"1000h"},` + limits + `}`, "ban.for"},
		"a ban of 200":       {`{"ban":{"for":"1m","status":200},` + limits + `}`, "ban.status"},
		"a ban of all":       {`{"ban":{"for":"1m"},"tenant":"x",` + limits + `}`, "one of them could have all of them banned"},
		"beside zones":       {`{"ban":{"for":"1m"},"rate_limits":{"z":{"key":"a","window":"1s","max_events":1}}}`, "ban: not together with zones"},
		"unread below 0":     {`{"charge":[{"bytes":1,"unread":-1}],` + limits + `}`, "unread"},
		"costs of nothing":   {`{"costs":[{"route":"x","cost":"5"}],` + limits + `}`, "costs"},
		"a cost that is not": {`{"costs":[{"route":"default","cost":"0"}],` + limits + `}`, "cost"},
	} {
		_, err := provision(t, `{}`, test.handler)
		require.ErrorContains(t, err, test.want, name)
	}
	for text, want := range map[string]string{
		"charge status":            "charge needs a kind and a value",
		"charge statsu 401":        "status",
		"charge header a b":        "takes one value",
		"charge bytes 0":           "charge bytes",
		"charge json a..b":         "is no path",
		"charge status 401 on x":   "is not a route",
		"unread 5":                 "unread: it is for `charge`",
		"ban":                      "ban needs a duration",
		"ban 1ms":                  "ban",
		"ban 1h 500":               "allowed are 429 and 403",
		"cost 5 on x":              "is not a route",
		"cost 5 to default":        "on <route>",
		"charge bytes 1\nunread x": "unread",
	} {
		h := new(Handler)
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("rate_limit {\n" + text + "\n}"))
		require.ErrorContains(t, err, want, text)
	}
}

// routeKey is the bucket of a tenant on a route.
func routeKey(tenant, route string) limit.Key { return limit.Key{Tenant: tenant, Route: route} }

// lookAt looks at a bucket.
func lookAt(key limit.Key, rule limit.Rule) limit.Request {
	return limit.Request{Buckets: []limit.Bucket{{Key: key, Rule: rule}}, Cost: 1}
}
