package cases_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// atOnce is a service that notes how many of its requests run, and at most ran.
type atOnce struct {
	*service
	now, most atomic.Int64
}

func newAtOnce(t *testing.T, answer http.HandlerFunc) *atOnce {
	t.Helper()
	s := new(atOnce)
	s.service = newService(t, func(w http.ResponseWriter, r *http.Request) {
		now := s.now.Add(1)
		defer s.now.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		answer(w, r)
	})
	return s
}

// places is how many places are held in Redis.
func places(t *testing.T, redis *servertest.RedisServer, tenant string) int {
	t.Helper()
	n, err := redis.Client(t).ZCard(t.Context(), "rl:{"+tenant+"}:a:run").Result()
	require.NoError(t, err)
	return int(n)
}

// TestAtOnce: of requests on three gateways, no more run than may, and as many while
// there is demand.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	const most = 7
	n := 200
	if servertest.Thorough(t, "1,000 requests at once instead of 200") {
		n = 1000
	}
	redis := servertest.Redis(t)
	random := func() time.Duration { return time.Duration(50+rand.IntN(150)) * time.Millisecond }
	s := newAtOnce(t, func(http.ResponseWriter, *http.Request) { time.Sleep(random()) })
	site := charging(redis.URL(), fmt.Sprintf("concurrent %d", most), s.service)
	all := []*gateway.Process{gateway.Start(t, site), gateway.Start(t, site), gateway.Start(t, site)}
	var wait sync.WaitGroup
	var left, full, samples atomic.Int64
	left.Store(int64(n))
	for worker := range 40 {
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				for {
					got := all[worker%3].Get("/", "t")
					if got.Status == 200 {
						break
					}
					if got.Status != 429 || got.Header.Get("Retry-After") != "1" || got.Field("X-RateLimit-Limit") != most || got.Remaining() != 0 {
						t.Errorf("status %d, %v", got.Status, got.Header)
						return
					}
					time.Sleep(time.Millisecond) // a client that does not wait
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for left.Load() > 0 {
			samples.Add(1)
			if s.now.Load() == most {
				full.Add(1)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	wait.Wait()
	<-done
	require.EqualValues(t, most, s.most.Load())
	t.Logf("%d of %d samples: %d ran", full.Load(), samples.Load(), most)
	gateway.Eventually(t, 20*time.Second, "all places are free", func() bool { return places(t, redis, "t") == 0 })
	require.Positive(t, total("declined_requests_total", all...))
}

// TestPlacesGivenBack: whatever ends a request, nobody holds its place any more.
func TestPlacesGivenBack(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	all := endings()
	s, arrived := endingService(t, all)
	g := gateway.Start(t, charging(redis.URL(), "concurrent 1\nlimit 1/1000s burst 100", s))
	for range 2 {
		for i, e := range all {
			e.ask(t, g, e.name, arrived[i])
			gateway.Eventually(t, 20*time.Second, e.name+" is over", func() bool { return places(t, redis, e.name) == 0 })
		}
	}
	require.Zero(t, g.Metric("caddy_rate_limit_running_requests"))
}

// TestPlacesOfWebSockets: a connection that was taken over holds its place until it is
// closed.
func TestPlacesOfWebSockets(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			hijacks(w, r)
		}
	})
	g := gateway.Start(t, charging(redis.URL(), "concurrent 1", s))
	open := func() (net.Conn, int) {
		conn, err := net.Dial("tcp", g.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nX-Api-Key: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", g.Addr)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		return conn, res.StatusCode
	}
	first, status := open()
	require.Equal(t, 101, status)
	_, status = open()
	require.Equal(t, 429, status)
	require.EqualValues(t, 1, g.Metric("caddy_rate_limit_running_requests"))
	fmt.Fprint(first, "frame\n")
	_, _ = io.ReadAll(first)
	require.NoError(t, first.Close())
	gateway.Eventually(t, 20*time.Second, "the place is free", func() bool { return places(t, redis, "t") == 0 })
	_, status = open()
	require.Equal(t, 101, status)
	require.Equal(t, 429, g.Get("/", "t").Status)
}

// TestPlacesOfTheDead: the places of a gateway that was killed are free when their lease
// is over, and not before; those of one that lives are renewed.
func TestPlacesOfTheDead(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	release := make(chan struct{})
	s := newAtOnce(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	site := charging(redis.URL(), "concurrent 2", s.service)
	dies, lives := gateway.Start(t, site), gateway.Start(t, site)
	for _, g := range []*gateway.Process{dies, lives} {
		go func() { _, _ = g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"t"}}) }()
	}
	gateway.Eventually(t, 20*time.Second, "both run", func() bool { return s.reached.Load() == 2 })
	dies.Kill()
	client, key := redis.Client(t), "rl:{t}:a:run"
	held, err := client.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, held, 2)
	require.Equal(t, 429, lives.Get("/", "t").Status)
	now, err := client.Time(t.Context()).Result()
	require.NoError(t, err)
	for _, place := range held {
		left := time.Duration(place.Score-float64(now.UnixMilli())) * time.Millisecond
		require.Greater(t, left, -time.Minute)
		require.LessOrEqual(t, left, 15*time.Second)
	}
	// The gateway that lives renews its place every five seconds, which makes it the
	// younger one; then time passes for both.
	gateway.Eventually(t, time.Minute, "one is renewed", func() bool {
		again, err := client.ZRangeWithScores(t.Context(), key, -1, -1).Result()
		return err == nil && again[0].Score > max(held[0].Score, held[1].Score)
	})
	oldest, err := client.ZRange(t.Context(), key, 0, 0).Result()
	require.NoError(t, err)
	require.NoError(t, client.ZIncrBy(t.Context(), key, -15_000, oldest[0]).Err())
	go func() { _, _ = lives.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"t"}}) }()
	gateway.Eventually(t, 20*time.Second, "its place is another's", func() bool { return s.reached.Load() == 3 })
	require.Equal(t, 429, lives.Get("/", "t").Status)
}

// TestPlacesWithoutRedis: the fallback counts what this gateway runs, and what it let in
// is entered in Redis when that is back, empty.
func TestPlacesWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := newAtOnce(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	})
	g := gateway.Start(t, charging(redis.URL(), "concurrent 3", s.service))
	begin := func(n int64) {
		go func() { _, _ = g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"t"}}) }()
		gateway.Eventually(t, 20*time.Second, "it runs", func() bool { return s.reached.Load() == n })
	}
	begin(1)
	begin(2)
	redis.Kill(t)
	begin(3) // the fallback knows of both
	require.Equal(t, 429, g.Get("/", "t").Status)
	redis.Restart(t)
	gateway.Eventually(t, time.Minute, "all are entered", func() bool {
		n, err := redis.Client(t).ZCard(t.Context(), "rl:{t}:a:run").Result()
		return err == nil && n == 3
	})
	require.Equal(t, 429, g.Get("/", "t").Status)
	cancel()
	gateway.Eventually(t, 20*time.Second, "all places are free", func() bool { return places(t, redis, "t") == 0 })
	require.LessOrEqual(t, s.most.Load(), int64(3))
}
