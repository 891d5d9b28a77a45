package ratelimit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

// asked is a Limiter whose token buckets ask for the layers before Redis, which
// calls every source one, because the suite knows one, and whose keys are its own,
// because what apps remember is pooled.
type asked struct {
	limit.Limiter
	owner    string
	prefetch int32
	shards   uint8
	source   limit.Source
}

func (a asked) Take(ctx context.Context, req limit.Request) (limit.Decision, error) {
	req.Buckets = slices.Clone(req.Buckets)
	for i := range req.Buckets {
		req.Buckets[i].Key.Tenant = a.owner + req.Buckets[i].Key.Tenant
	}
	if len(req.Buckets) == 1 && req.Cost == 1 {
		req.Buckets[0].Rule.Prefetch = a.prefetch
		if req.Buckets[0].Rule.Algorithm == limit.TokenBucket {
			req.Buckets[0].Rule.Shards = a.shards
		}
	}
	decision, err := a.Limiter.Take(ctx, req)
	decision.Source = a.source
	for i := range decision.Each {
		decision.Each[i].Source = a.source
	}
	return decision, err
}

func (a asked) Settle(s limit.Settlement) {
	s.Bucket.Key.Tenant = a.owner + s.Bucket.Key.Tenant
	a.Limiter.Settle(s)
}

func (a asked) Reset(ctx context.Context, key limit.Key) error {
	key.Tenant = a.owner + key.Tenant
	err := a.Limiter.Reset(ctx, key)
	if a.source == limit.SourceLocal {
		return nil // that of Redis, which is down: the bucket here was reset
	}
	return err
}

// TestEveryChain holds every chain that a configuration can build to what every
// Limiter does.
func TestEveryChain(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	var fixtures atomic.Int64
	tests := map[string]struct {
		app  string
		with asked
	}{
		"alone":              {`{}`, asked{source: limit.SourceLocal}},
		"redis":              {`{"redis":{"urls":["` + redis.URL() + `"],"timeout":"5s"}}`, asked{source: limit.SourceRedis}},
		"redis, prefetch":    {`{"redis":{"urls":["` + redis.URL() + `"],"timeout":"5s","key_prefix":"p"}}`, asked{source: limit.SourceRedis, prefetch: 50}},
		"redis, auto":        {`{"redis":{"urls":["` + redis.URL() + `"],"timeout":"5s","key_prefix":"a"}}`, asked{source: limit.SourceRedis, prefetch: limit.PrefetchAuto}},
		"redis that is down": {`{"redis":{"urls":["redis://` + servertest.FreeAddr(t) + `"]}}`, asked{source: limit.SourceLocal}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limittest.Run(t, func(t *testing.T) limittest.Fixture {
				with := test.with
				with.owner = fmt.Sprintf("fixture-%d.", fixtures.Add(1))
				with.Limiter = running(t, test.app).limiter
				return limittest.Fixture{
					Limiter: with, Source: with.source, BansNobody: name == "redis that is down",
					Algorithms: []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowLog, limit.SlidingWindowCounter},
				}
			})
		})
	}
}

// running is an app that was started, with stores of its own.
func running(t *testing.T, config string) *App {
	t.Helper()
	ctx, err := provisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{appName: json.RawMessage(config)}})
	require.NoError(t, err)
	loaded, err := ctx.App(appName)
	require.NoError(t, err)
	app := loaded.(*App)
	require.NoError(t, app.Start())
	t.Cleanup(func() {
		require.NoError(t, app.Stop())
		require.NoError(t, app.Cleanup())
	})
	return app
}
