package limit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestH6Each puts the decisions on buckets that were asked apart together, and
// takes them out again.
func TestH6Each(t *testing.T) {
	t.Parallel()
	parts := []limit.Decision{
		{Granted: 3, Source: limit.SourceRedis, First: limit.State{Remaining: 5}},
		{Source: limit.SourceRemembered, First: limit.State{RetryAfter: time.Second}},
		{Granted: 1, Source: limit.SourceLocal, First: limit.State{Remaining: 1}},
	}
	all := limit.NewApart(len(parts))
	for _, i := range []int{2, 0, 1} {
		all.Put(i, parts[i])
	}
	require.Zero(t, all.Granted, "the least of them")
	require.Equal(t, limit.SourceRedis, all.Source)
	for i, part := range parts {
		require.Equal(t, part, all.Part(i))
	}

	together := limit.Decision{Granted: 2, Source: limit.SourceRedis, Rest: []limit.State{{Remaining: 4}}}
	require.Equal(t, limit.Decision{Granted: 2, Source: limit.SourceRedis, First: limit.State{Remaining: 4}}, together.Part(1))
}

// TestH6TakeEach asks once for each bucket, and ends at an error.
func TestH6TakeEach(t *testing.T) {
	t.Parallel()
	req := limit.Request{Buckets: make([]limit.Bucket, 3), Cost: 2, Count: 1, Apart: true}
	require.True(t, req.Splits())
	for i := range req.Buckets {
		req.Buckets[i].Key.Tenant = string(rune('a' + i))
	}
	asked := ""
	take := func(one limit.Request) (limit.Decision, error) {
		require.Len(t, one.Buckets, 1)
		require.False(t, one.Apart)
		require.Equal(t, int64(2), one.Cost)
		asked += one.Buckets[0].Key.Tenant
		if asked == "abcab" {
			return limit.Decision{}, errors.ErrUnsupported
		}
		return limit.Decision{Granted: 1}, nil
	}
	d, err := req.TakeEach(take)
	require.NoError(t, err)
	require.Equal(t, int64(1), d.Granted)
	require.Len(t, d.Rest, 2)
	_, err = req.TakeEach(take)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Equal(t, "abcab", asked, "nobody is asked after an error")
}

// holding is a Limiter whose buckets hold what their rules' capacities say.
type holding struct{ limit.Limiter }

func (holding) Take(_ context.Context, req limit.Request) (limit.Decision, error) {
	d := limit.Decision{First: limit.State{Remaining: req.Buckets[0].Rule.Capacity}}
	if d.First.Remaining < req.Cost {
		d.First.RetryAfter = time.Second
	}
	return d, nil
}

// TestH6ForeseeApart foresees each bucket by itself.
func TestH6ForeseeApart(t *testing.T) {
	t.Parallel()
	req := limit.Request{Buckets: make([]limit.Bucket, 2), Cost: 2, Apart: true}
	req.Buckets[0].Rule.Capacity, req.Buckets[1].Rule.Capacity = 1, 5
	d, err := limit.Foresee(t.Context(), holding{}, req)
	require.NoError(t, err)
	require.Zero(t, d.Grant(0).Granted)
	require.Equal(t, int64(1), d.Grant(1).Granted)
	require.Equal(t, int64(3), d.At(1).Remaining)
}
