package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/lua"
	"github.com/caddygate/ratelimit/redisbucket"
)

const (
	seenKey  = "rl:{~instances}"
	rulesKey = "rl:{~instances}:rules"
)

// heart runs the script as processes do, by a client of its own.
type heart struct {
	t      testing.TB
	client *redis.Client
}

func newHeart(t testing.TB) *heart { return &heart{t, servertest.Redis(t).Client(t)} }

func (h *heart) beat(member string, past ...any) Status {
	h.t.Helper()
	reply, err := h.run(member, past...)
	require.NoError(h.t, err)
	var fleet Status
	require.NoError(h.t, fleet.read(reply))
	return fleet
}

func (h *heart) run(member string, past ...any) (any, error) {
	args := append([]any{5000, member}, past...)
	return h.client.Eval(h.t.Context(), lua.Heartbeat().Text, []string{seenKey, rulesKey}, args...).Result()
}

// age moves when a member was last seen, by Redis' clock.
func (h *heart) age(member string, by time.Duration) {
	h.t.Helper()
	require.NoError(h.t, h.client.ZIncrBy(h.t.Context(), seenKey, -float64(by.Milliseconds()), member).Err())
}

func TestHeartbeatScriptCounts(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	require.Equal(t, int64(1), h.beat("aa/1").Counted)
	require.Equal(t, int64(1), h.beat("aa/1").Counted, "the same one again")
	require.Equal(t, int64(2), h.beat("aa/2").Counted)
	h.measure("of 2 processes with one hash", "aa/2")
	fleet := h.beat("bb/3")
	require.Equal(t, int64(3), fleet.Counted)
	require.Equal(t, []Group{{"aa", 2}, {"bb", 1}}, fleet.Rules)
	require.Equal(t, int64(1), fleet.Disagree())

	h.age("aa/1", 3*time.Second)
	fleet = h.beat("bb/3")
	require.Equal(t, int64(3), fleet.Counted, "seen less than 5 s ago")
	require.GreaterOrEqual(t, fleet.Oldest, 3*time.Second)
	h.age("aa/1", 3*time.Second)
	fleet = h.beat("bb/3")
	require.Equal(t, int64(2), fleet.Counted, "seen over 5 s ago")
	require.Equal(t, []Group{{"aa", 1}, {"bb", 1}}, fleet.Rules)

	require.Equal(t, int64(2), h.beat("aa/3", "bb/3").Counted, "other rules, and the same process")
	require.Equal(t, []Group{{"aa", 2}}, h.beat("aa/2").Rules)
	_, err := h.run("", "aa/2", "bb/2")
	require.NoError(t, err, "one leaves, under all names that it may have had")
	fleet = h.beat("aa/3")
	require.Equal(t, int64(1), fleet.Counted)
	require.Zero(t, fleet.Disagree())

	_, err = h.run("", "aa/3")
	require.NoError(t, err, "the last one leaves")
	require.Zero(t, h.client.Exists(t.Context(), seenKey, rulesKey).Val())
}

func TestHeartbeatScriptKeepsTTLs(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	h.beat("aa/1")
	for _, key := range []string{seenKey, rulesKey} {
		require.InDelta(t, 10*time.Second, h.client.PTTL(t.Context(), key).Val(), float64(time.Second), key)
	}
}

// TestHeartbeatScriptMends meets keys that others have damaged: it never fails, and
// who lives is counted again within one heartbeat of each.
func TestHeartbeatScriptMends(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	ctx := t.Context()
	for name, damage := range map[string]func() error{
		"a foreign type": func() error { return h.client.Set(ctx, seenKey, "x", 0).Err() },
		"a foreign type of the names": func() error {
			return h.client.Del(ctx, rulesKey).Err()
		},
		"both are foreign":    func() error { return h.client.MSet(ctx, seenKey, "x", rulesKey, "y").Err() },
		"seen is lost":        func() error { return h.client.Del(ctx, seenKey).Err() },
		"a stranger in one":   func() error { return h.client.ZAdd(ctx, rulesKey, redis.Z{Member: "zz"}).Err() },
		"both are lost":       func() error { return h.client.FlushAll(ctx).Err() },
		"a stamp of infinity": func() error { return h.client.Do(ctx, "zadd", seenKey, "inf", "aa/2").Err() },
		"an hour ahead":       func() error { h.age("aa/2", -time.Hour); return nil },
	} {
		h.beat("aa/1")
		h.beat("aa/2")
		require.NoError(t, damage(), name)
		h.beat("aa/1")
		require.Equal(t, int64(2), h.beat("aa/2").Counted, name)
		fleet := h.beat("aa/1")
		require.Equal(t, int64(2), fleet.Counted, name)
		require.Equal(t, []Group{{"aa", 2}}, fleet.Rules, name)
	}
}

// TestHeartbeatScriptOfAWrongClock has stamps ahead of Redis' clock, as after a
// fail-over to a master whose clock is behind: who is gone is not counted for it.
func TestHeartbeatScriptOfAWrongClock(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	h.beat("aa/gone")
	h.age("aa/gone", -time.Hour)
	require.Equal(t, int64(1), h.beat("aa/1").Counted)
}

// TestHeartbeatScriptOnAFullRedis fails and changes nothing.
func TestHeartbeatScriptOnAFullRedis(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	h.beat("aa/1")
	h.beat("aa/2")
	h.age("aa/1", time.Minute)
	require.NoError(t, h.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := h.run("aa/2")
	require.Equal(t, "oom", redisbucket.Reason(err))
	require.Equal(t, int64(2), h.client.ZCard(t.Context(), seenKey).Val())
	require.Equal(t, int64(2), h.client.ZCard(t.Context(), rulesKey).Val())
}

// TestHeartbeatScriptIsBounded has a large fleet: each call tells of a few hashes,
// forgets a part of many that are gone, and takes Redis a short time.
func TestHeartbeatScriptIsBounded(t *testing.T) {
	t.Parallel()
	h := newHeart(t)
	require.NoError(t, h.client.ScriptLoad(t.Context(), lua.Heartbeat().Text).Err())
	const live, atOnce = 100_000, 1000
	now, err := h.client.Time(t.Context()).Result()
	require.NoError(t, err)
	for from := 0; from < live; from += atOnce {
		var seen, names []redis.Z
		for i := from; i < from+atOnce; i++ {
			// A hundred hashes, of which one is that of half of the fleet.
			member := fmt.Sprintf("%02d/%d", max(0, i%200-100), i)
			seen = append(seen, redis.Z{Score: float64(now.UnixMilli()), Member: member})
			names = append(names, redis.Z{Member: member})
		}
		require.NoError(t, h.client.ZAdd(t.Context(), seenKey, seen...).Err())
		require.NoError(t, h.client.ZAdd(t.Context(), rulesKey, names...).Err())
	}
	h.measure("of 100,000 processes with 100 hashes", "00/self")
	fleet := h.beat("00/self")
	require.Equal(t, int64(live+1), fleet.Counted)
	require.Len(t, fleet.Rules, 16)
	require.Equal(t, Group{"00", live/2 + live/200 + 1}, fleet.Rules[0])

	for _, key := range []string{seenKey, rulesKey} {
		require.Greater(t, h.client.PTTL(t.Context(), key).Val(), 900*time.Second, "they take turns")
	}

	// All but one are gone: the rest goes bit by bit.
	require.NoError(t, h.client.ZUnionStore(t.Context(), seenKey, &redis.ZStore{Keys: []string{seenKey}, Weights: []float64{0.5}}).Err())
	fleet = h.beat("00/self")
	require.Equal(t, int64(live-1000+1), fleet.Counted)
}

// measure logs what a call costs Redis.
func (h *heart) measure(what, member string) {
	h.t.Helper()
	require.NoError(h.t, h.client.ConfigResetStat(h.t.Context()).Err())
	for range 100 {
		require.NoError(h.t, h.client.EvalSha(h.t.Context(), lua.Heartbeat().SHA1, []string{seenKey, rulesKey}, 5000, member).Err())
	}
	h.t.Logf("%s: %s", what, h.client.InfoMap(h.t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_evalsha"])
}

// TestFleetReadRefuses takes nothing else for a reply.
func TestFleetReadRefuses(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]any{
		"nil": nil, "a text": "OK", "a number": int64(3), "nothing": []any{}, "one": []any{int64(1)},
		"an odd number":  []any{int64(1), int64(0), "aa"},
		"texts":          []any{"1", "0"},
		"nobody":         []any{int64(0), int64(0)},
		"a broken group": []any{int64(1), int64(0), "aa", "1"},
		"no hash":        []any{int64(1), int64(0), int64(1), int64(1)},
	} {
		var fleet Status
		require.ErrorIs(t, fleet.read(reply), errReply, name)
		require.Zero(t, fleet.Counted, name)
	}
}
