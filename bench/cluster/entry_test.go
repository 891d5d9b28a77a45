package main

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestCallIn(t *testing.T) {
	t.Parallel()
	log := func(all ...[]string) []redis.SlowLog {
		entries := make([]redis.SlowLog, len(all))
		for i, args := range all {
			entries[i].Args = args
		}
		return entries
	}
	got, err := callIn(log([]string{"CONFIG", "SET"}, []string{"EVALSHA", "abc", "1", "k", "\x00"}, []string{"evalsha", "before"}))
	require.NoError(t, err)
	require.Equal(t, []any{"EVALSHA", "abc", "1", "k", "\x00"}, got)
	_, err = callIn(log([]string{"PING"}))
	require.ErrorContains(t, err, "no call of the script")
	for _, cut := range []string{"xx... (12 more bytes)", "... (3 more arguments)"} {
		_, err = callIn(log([]string{"evalsha", "abc", cut}))
		require.ErrorIs(t, err, errCut)
	}
}

func TestASecondBucketCostsRedisSomething(t *testing.T) {
	t.Parallel()
	got, err := measureSecondBucket(3)
	require.NoError(t, err)
	ratio, found := got.at(secondBucket, ofOne)
	require.True(t, found)
	require.Positive(t, ratio)
}
