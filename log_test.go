package ratelimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/limit"
)

// decidedAs is an answer about one bucket, of 5 tokens.
func decidedAs(what outcome, state limit.State) *verdict {
	a := new(verdict)
	a.add(charge{
		zone: &zone{name: "api"}, tenant: "shop-a", bucket: limit.Bucket{Rule: limit.Rule{Capacity: 5}},
		state: state, source: limit.SourceRedis, outcome: what,
	})
	return a
}

func TestFinding(t *testing.T) {
	t.Parallel()
	decided := func(word string, remaining, retryAfter int64) map[string]any {
		return map[string]any{
			"outcome": word, "route": "api", "source": "redis",
			"limit": int64(5), "remaining": remaining, "retry_after_ms": retryAfter,
		}
	}
	refused := func(remaining, retryAfter int64, reason string) map[string]any {
		told := decided("refused", remaining, retryAfter)
		told["reason"] = reason
		return told
	}
	metered := decidedAs(outcomeGranted, limit.State{Remaining: 4})
	metered.charges[0].zone.meter, metered.charges[0].due = new(meter), &due{taken: 3}
	reserved := decided("granted", 4, 0)
	reserved["charged"] = int64(3)
	settled := decidedAs(outcomeGranted, limit.State{Remaining: 4})
	settled.charges[0].zone.meter, settled.charges[0].due = new(meter), &due{billed: true, spent: 12}
	billed := decided("granted", 4, 0)
	billed["charged"] = int64(12)
	withTenant := decidedAs(outcomeGranted, limit.State{Remaining: 4})
	withTenant.charges[0].zone.logKey = true
	named := decided("granted", 4, 0)
	named["tenant"] = "shop-a"
	byNobody := decidedAs(outcomeAllowed, limit.State{})
	byNobody.charges[0].source = limit.SourceNone
	turned := new(verdict)
	turned.turnAway(outcomeUnauthorized, &zone{name: "api"})
	tests := map[string]struct {
		answer *verdict
		want   map[string]any
	}{
		"granted":        {decidedAs(outcomeGranted, limit.State{Remaining: 4}), decided("granted", 4, 0)},
		"refused":        {decidedAs(outcomeRefused, limit.State{RetryAfter: 1500*time.Millisecond + 1}), refused(0, 1501, "rate")},
		"never":          {decidedAs(outcomeRefused, limit.State{Remaining: 3, RetryAfter: limit.Never}), refused(3, -1, "rate")},
		"banned":         {decidedAs(outcomeRefused, limit.State{RetryAfter: time.Hour, Banned: time.Hour}), refused(0, 3600000, "ban")},
		"reserved":       {metered, reserved},
		"settled":        {settled, billed},
		"shadow":         {decidedAs(outcomeShadow, limit.State{RetryAfter: time.Second}), decided("shadow", 0, 1000)},
		"log_key":        {withTenant, named},
		"fallback allow": {byNobody, map[string]any{"outcome": "allowed", "route": "api", "source": "none"}},
		"turned away":    {turned, map[string]any{"outcome": "unauthorized", "route": "api"}},
		"nothing":        {new(verdict), map[string]any{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			encoder := zapcore.NewMapObjectEncoder()
			require.NoError(t, test.answer.MarshalLogObject(encoder))
			require.Equal(t, test.want, encoder.Fields)
			attributes := map[string]any{}
			if f, found := test.answer.finding(); found {
				for _, kv := range f.attributes() {
					attributes[string(kv.Key)[len("rate_limit."):]] = kv.Value.AsInterface()
				}
			}
			require.Equal(t, test.want, attributes)
		})
	}
}

// recording is a span that keeps its attributes.
type recording struct {
	noop.Span
	attributes []attribute.KeyValue
}

func (*recording) IsRecording() bool { return true }

func (s *recording) SetAttributes(added ...attribute.KeyValue) {
	s.attributes = append(s.attributes, added...)
}

// TestAnnotateCostsNothing where nobody looks.
func TestAnnotateCostsNothing(t *testing.T) {
	a := decidedAs(outcomeGranted, limit.State{Remaining: 4})
	contexts := map[string]context.Context{
		"nobody":           t.Context(),
		"no access log":    context.WithValue(t.Context(), caddyhttp.ServerCtxKey, new(caddyhttp.Server)),
		"span not sampled": trace.ContextWithSpan(t.Context(), noop.Span{}),
	}
	for name, ctx := range contexts {
		require.Zero(t, testing.AllocsPerRun(100, func() { a.annotate(ctx) }), name)
	}
	require.False(t, a.logged)
}

// TestSpan meets the span of the request through the handler.
func TestSpan(t *testing.T) {
	t.Parallel()
	handler, err := provision(t, `{}`, `{"routes":["a"],"limits":[{"capacity":1,"refill_per_second":0.001}]}`)
	require.NoError(t, err)
	serve := func(key string) map[string]any {
		span := new(recording)
		ctx := context.WithValue(t.Context(), caddy.ReplacerCtxKey, caddy.NewReplacer())
		ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(trace.ContextWithSpan(ctx, span))
		r.Header.Set("X-Api-Key", key)
		_ = handler.ServeHTTP(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
		told := map[string]any{}
		for _, kv := range span.attributes {
			told[string(kv.Key)] = kv.Value.AsInterface()
		}
		return told
	}
	require.Equal(t, map[string]any{
		"rate_limit.outcome": "granted", "rate_limit.route": "a", "rate_limit.source": "local",
		"rate_limit.limit": int64(1), "rate_limit.remaining": int64(0), "rate_limit.retry_after_ms": int64(0),
	}, zeroWait(serve("x")))
	require.Equal(t, "refused", serve("x")["rate_limit.outcome"])
	require.Equal(t, map[string]any{"rate_limit.outcome": "unauthorized", "rate_limit.route": "a"}, serve(""))
}

// TestSpanTellsWhatWasCharged when the answer has ended, also where it was cut.
func TestSpanTellsWhatWasCharged(t *testing.T) {
	t.Parallel()
	handler, err := provision(t, `{}`, `{"routes":["span-charged"],"charge":[{"header":"X-Cost"}],"limits":[{"capacity":100,"refill_per_second":0.001}]}`)
	require.NoError(t, err)
	for name, ending := range map[string]func(){"whole": func() {}, "cut": func() { panic(http.ErrAbortHandler) }} {
		span := new(recording)
		func() {
			defer func() { _ = recover() }()
			_, _ = call(t, handler, func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("X-Cost", "17")
				w.WriteHeader(http.StatusOK)
				ending()
				return nil
			}, func(r *http.Request) *http.Request { return r.WithContext(trace.ContextWithSpan(r.Context(), span)) })
		}()
		var charged []int64
		for _, kv := range span.attributes {
			if kv.Key == "rate_limit.charged" {
				charged = append(charged, kv.Value.AsInt64())
			}
		}
		require.Equal(t, []int64{1, 17}, charged, name)
	}
}

// zeroWait hides how long the next request would have to wait.
func zeroWait(told map[string]any) map[string]any {
	told["rate_limit.retry_after_ms"] = int64(0)
	return told
}

// BenchmarkAnnotate is what a request pays for spans and access logs that nobody
// asked for.
func BenchmarkAnnotate(b *testing.B) {
	a := decidedAs(outcomeGranted, limit.State{Remaining: 4})
	ctx := context.WithValue(b.Context(), caddyhttp.ServerCtxKey, new(caddyhttp.Server))
	for range 6 { // as deep as a request's
		ctx = context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, a)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.annotate(ctx)
	}
}

// TestRefusals samples the log by bucket and minute.
func TestRefusals(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := newRefusals(zap.New(core))
	now := time.Now()
	key := limit.Key{Tenant: "t1", Route: "a"}
	said := refusal{zone: "a", source: limit.SourceRedis, reason: reasonBan, wait: time.Second}
	for range 100 {
		r.noteAt(now, key, said)
	}
	r.drain()
	require.Equal(t, 1, logs.Len())
	r.noteAt(now.Add(time.Minute), key, said)
	r.drain()
	require.Equal(t, 3, logs.Len(), "the count of the first minute, and the first of the next")
	require.EqualValues(t, 99, logs.All()[1].ContextMap()["refused"])
	r.flush(now.Add(90*time.Second), false)
	require.Equal(t, 3, logs.Len(), "the minute is not over, and there is nothing to count")
	r.noteAt(now.Add(61*time.Second), key, said)
	r.flush(now.Add(3*time.Minute), false)
	require.Equal(t, 4, logs.Len())
	require.Contains(t, logs.All()[0].ContextMap(), "wait")
	require.Equal(t, "ban", logs.All()[0].ContextMap()["reason"])
	said.wait = limit.Never
	r.noteAt(now.Add(4*time.Minute), key, said)
	r.drain()
	require.NotContains(t, logs.All()[4].ContextMap(), "wait", "no wait helps")
}

// TestH8Refusals floods the log, whose sink takes nothing, with more buckets than it
// samples: each refusal is a line of its bucket, in a count of its bucket, or among
// the others.
func TestH8Refusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ buckets, perZone int }{"2,000": {2000, 10}, "over the bound": {20_000, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.InfoLevel)
			r := newRefusals(zap.New(core))
			now := time.Now()
			for range test.perZone {
				for i := range test.buckets {
					tenant := strconv.Itoa(i)
					r.noteAt(now, limit.Key{Tenant: tenant, Route: "a"}, refusal{zone: "a", tenant: tenant})
				}
			}
			require.Zero(t, logs.Len(), "no request waits for the log")
			r.drain()
			r.flush(now.Add(time.Minute), false)
			r.flush(now.Add(time.Minute), true)
			sum, others, seen := int64(0), int64(0), map[string]int64{}
			for _, line := range logs.All() {
				said := line.ContextMap()
				refused, counted := said["refused"].(int64)
				if !counted {
					refused = 1
				}
				sum += refused
				if line.Message == refusedOthers {
					others += refused
				} else {
					seen[said["key"].(string)] += refused
				}
			}
			require.EqualValues(t, test.buckets*test.perZone, sum)
			for tenant, refused := range seen {
				require.LessOrEqual(t, refused, int64(test.perZone), "tenant %s has another's count", tenant)
			}
			require.LessOrEqual(t, len(seen), hot.Buckets)
			if test.buckets == 2000 {
				require.Len(t, seen, 2000, "each tenant is named")
				require.LessOrEqual(t, others, int64(1000), "only what had no room among the lines")
			}
		})
	}
}

// TestK13LongNames sees which tenants are told as they were sent.
func TestK13LongNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tenant string
		whole  bool
	}{
		{"shop-a", true},
		{strings.Repeat("n", longestShown), true},
		{strings.Repeat("n", longestShown+1), false},
		{strings.Repeat("\u00fc", 64), true}, // 128 bytes, and rules can name it
		{strings.Repeat("n", 500_000), false},
	} {
		c := charge{tenant: test.tenant, bucket: limit.Bucket{Key: limit.Key{Tenant: limit.EscapeName(test.tenant)}}}
		if test.whole {
			require.Equal(t, test.tenant, c.told())
		} else {
			require.Regexp(t, `^~sha256-[0-9a-f]{64}$`, c.told())
		}
	}
}
