package localbucket

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/model"
	"github.com/caddygate/ratelimit/limit"
)

// TestReference holds every number of every answer over many random traces for
// each algorithm, and for all of them mixed, to the model's.
func TestReference(t *testing.T) {
	t.Parallel()
	for algorithm := limit.Algorithm(0); algorithm <= limit.SlidingWindowCounter; algorithm++ {
		t.Run(fmt.Sprintf("%d %s", algorithm, algorithm), func(t *testing.T) {
			t.Parallel()
			for seed := range model.Traces(10_000) {
				replay(t, model.Options{Seed: seed, Algorithm: algorithm, Monotonic: true})
			}
		})
	}
}

func replay(t testing.TB, o model.Options) {
	t.Helper()
	var now int64
	l := New(NewStore(), Options{Clock: func() time.Time { return time.UnixMicro(now) }})
	l.store.epoch = time.Unix(0, 0)
	for i, step := range model.Trace(o) {
		now = step.Micros
		step.Want.Source = limit.SourceLocal
		got, err := l.Take(context.Background(), step.Request)
		require.NoError(t, err)
		if !equal(&got, &step.Want) {
			require.Equal(t, step.Want, got, "seed %d, step %d, %+v", o.Seed, i, step.Request)
		}
	}
}

// TestAccounts holds what is settled, owed and banned over random traces to the model.
func TestAccounts(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindowCounter} {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range model.Traces(10_000) {
				var now int64
				l := New(NewStore(), Options{Clock: func() time.Time { return time.UnixMicro(now) }})
				l.store.epoch = time.Unix(0, 0)
				for i, e := range model.Account(seed, algorithm) {
					now = e.Micros
					if s := e.Settlement; s != nil {
						s.Source = limit.SourceLocal
						s.Ended = func(with limit.Settled) { require.Equal(t, e.Settled, with, "seed %d, step %d, %+v", seed, i, s) }
						l.Settle(*s)
						continue
					}
					e.Want.Source = limit.SourceLocal
					got, err := l.Take(context.Background(), e.Request)
					require.NoError(t, err)
					require.Equal(t, e.Want, got, "seed %d, step %d, %+v", seed, i, e.Request)
				}
			}
		})
	}
}

// equal is require.Equal, quickly.
func equal(a, b *limit.Decision) bool {
	if a.Granted != b.Granted || a.Source != b.Source || a.First != b.First || len(a.Rest) != len(b.Rest) {
		return false
	}
	for i := range a.Rest {
		if a.Rest[i] != b.Rest[i] {
			return false
		}
	}
	return true
}
