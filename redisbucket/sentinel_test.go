package redisbucket

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/limit/limittest"
)

// onSentinels returns a started Limiter that asks private sentinels.
func onSentinels(t *testing.T, s *servertest.RedisSentinels) *Limiter {
	t.Helper()
	l := started(t, sentinelOptions(s))
	require.Equal(t, s.Master().Addr+"/0", l.client.Status().Nodes[0].Address)
	return l
}

func sentinelOptions(s *servertest.RedisSentinels) Options {
	return Options{URLs: s.URLs(), Mode: ModeSentinel, Master: servertest.MasterName, TLS: TLS{CAFile: s.Certificate.CertFile}}
}

// TestSentinelLimiter holds the Limiter to the suite that every Limiter passes.
func TestSentinelLimiter(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	l := onSentinels(t, s)
	client := s.Master().Client(t)
	limittest.Run(t, func(t *testing.T) limittest.Fixture {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		return limittest.Fixture{
			Limiter: l, Source: limit.SourceRedis, Algorithms: limittest.AllAlgorithms(),
			Advance: func(t testing.TB, d time.Duration) { advance(t, client, d) },
		}
	})
}

// untilDecided asks until Redis decides, at the address.
func untilDecided(t *testing.T, l *Limiter, addr string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	r := rule(t, 1_000_000, 1)
	require.Eventually(t, func() bool {
		_, err := quick(l, r)
		nodes := l.client.Status().Nodes
		return err == nil && nodes[0].Address == addr+"/0"
	}, 30*time.Second, 5*time.Millisecond)
	return time.Since(began)
}

// TestSentinelFailovers changes the master three times in a row: in good order,
// and by killing it.
func TestSentinelFailovers(t *testing.T) {
	t.Parallel()
	failovers := 2 // one of each kind
	if servertest.Thorough(t, "three fail-overs instead of two") {
		failovers = 3
	}
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	seen := &observed{}
	l := New(seen.start(t, sentinelOptions(s)), "")
	untilDecided(t, l, s.Master().Addr)
	for round := range failovers {
		before := s.Master()
		if round == 1 {
			began := time.Now()
			before.Kill(t)
			s.AwaitMaster(t, before)
			agreed := time.Since(began)
			untilDecided(t, l, s.Master().Addr)
			t.Logf("killed: the sentinels agree after %v, decided after %v", agreed, time.Since(began))
			before.Restart(t)
			s.AwaitHealthy(t)
			continue
		}
		began := time.Now()
		s.Failover(t)
		agreed := time.Since(began)
		untilDecided(t, l, s.Master().Addr)
		t.Logf("in good order: the sentinels agree after %v, decided after %v", agreed, time.Since(began))
		s.AwaitHealthy(t)
	}
	changes := slices.DeleteFunc(seen.get(), func(e Event) bool { return e.Kind != MastersChanged })
	require.GreaterOrEqual(t, len(changes), failovers)
	require.LessOrEqual(t, len(changes), s.Failovers(t), "it goes nowhere that the sentinels do not; on a busy machine they go more often than asked to")
	require.Equal(t, s.Master().Addr, changes[len(changes)-1].Detail)
}

// TestSentinelsDie: one is enough, and none is needed while the master works.
func TestSentinelsDie(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	l := onSentinels(t, s)
	r := rule(t, 1_000_000, 1)
	s.Sentinels[0].Kill(t)
	s.Sentinels[1].Kill(t)
	second := started(t, sentinelOptions(s))
	take(t, second, r)
	s.Sentinels[2].Kill(t)
	take(t, l, r)
	third := started(t, sentinelOptions(s))
	_, err := quick(third, r)
	require.Equal(t, "connection", Reason(err))
	require.Equal(t, "connection", third.client.Status().LastReason)
	s.Sentinels[1].Restart(t)
	untilDecided(t, third, s.Servers[0].Addr)
}

// TestUnknownMaster cannot be known before the sentinels are asked: it is told
// once, in the status, and in each error, and mends itself.
func TestUnknownMaster(t *testing.T) {
	t.Parallel()
	s := servertest.Sentinels(t, servertest.SentinelOptions{})
	o := sentinelOptions(s)
	o.Master = "other"
	seen := &observed{}
	client := seen.start(t, o)
	l := New(client, "")
	began := time.Now()
	_, err := quick(l, rule(t, 10, 1))
	require.Equal(t, "unknown_master", Reason(err))
	require.Less(t, time.Since(began), patience)
	require.Equal(t, "unknown_master", client.Status().LastReason)
	require.Eventually(t, func() bool { return len(seen.get()) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []any{UnknownMaster, "unknown_master"}, []any{seen.get()[0].Kind, seen.get()[0].Detail})
	for _, sentinel := range s.Sentinels {
		host, port := "127.0.0.1", portOf(s.Servers[0])
		require.NoError(t, sentinel.Client(t).Do(t.Context(), "sentinel", "monitor", "other", host, port, 2).Err())
	}
	untilDecided(t, l, s.Servers[0].Addr)
	require.Eventually(t, func() bool { return len(seen.get()) == 2 }, 10*time.Second, time.Millisecond, "told once, and that it is over")
	require.Equal(t, Reached, seen.get()[1].Kind)
}

func portOf(s *servertest.RedisServer) int {
	for i := range s.Addr {
		if s.Addr[i] == ':' {
			port, _ := strconv.Atoi(s.Addr[i+1:])
			return port
		}
	}
	return 0
}
