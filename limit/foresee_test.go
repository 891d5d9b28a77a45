package limit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// looked is a Limiter that answers looks.
type looked struct {
	decision limit.Decision
	err      error
	asked    []limit.Request
}

func (l *looked) Take(_ context.Context, req limit.Request) (limit.Decision, error) {
	l.asked = append(l.asked, req)
	return l.decision, l.err
}

func (l *looked) Settle(limit.Settlement)                {}
func (l *looked) Reset(context.Context, limit.Key) error { return nil }

func TestForeseeFromALook(t *testing.T) {
	t.Parallel()
	two := []limit.Bucket{{}, {}}
	for name, test := range map[string]struct {
		buckets    []limit.Bucket
		told, want limit.Decision
	}{
		"granted": {
			two[:1],
			limit.Decision{Source: limit.SourceRedis, First: limit.State{Remaining: 5}},
			limit.Decision{Granted: 1, Source: limit.SourceRedis, First: limit.State{Remaining: 3}},
		},
		"refused": {
			two[:1],
			limit.Decision{First: limit.State{Remaining: 1, RetryAfter: time.Second}},
			limit.Decision{First: limit.State{Remaining: 1, RetryAfter: time.Second}},
		},
		"never": {
			two[:1],
			limit.Decision{First: limit.State{Remaining: 1, RetryAfter: limit.Never}},
			limit.Decision{First: limit.State{Remaining: 1, RetryAfter: limit.Never}},
		},
		"all": {
			two,
			limit.Decision{First: limit.State{Remaining: 5}, Rest: []limit.State{{Remaining: 2}}},
			limit.Decision{Granted: 1, First: limit.State{Remaining: 3}, Rest: []limit.State{{Remaining: 0}}},
		},
		"one refuses": {
			two,
			limit.Decision{First: limit.State{Remaining: 5}, Rest: []limit.State{{Remaining: 1, RetryAfter: 1}}},
			limit.Decision{First: limit.State{Remaining: 5}, Rest: []limit.State{{Remaining: 1, RetryAfter: 1}}},
		},
		"no answer to read": {two, limit.Decision{Granted: 0, First: limit.State{Remaining: 5}}, limit.Decision{First: limit.State{Remaining: 5}}},
	} {
		l := &looked{decision: test.told}
		got, err := limit.Foresee(context.Background(), l, limit.Request{Buckets: test.buckets, Cost: 2, Count: 7})
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
		require.Zero(t, l.asked[0].Count, "%s: it only looks", name)
	}
	failure := errors.New("gone")
	_, err := limit.Foresee(context.Background(), &looked{err: failure}, limit.Request{Buckets: two, Cost: 1})
	require.ErrorIs(t, err, failure)
}
