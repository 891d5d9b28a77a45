package cases_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// service is an upstream, and how often it was reached.
type service struct {
	*httptest.Server
	reached atomic.Int64
}

func newService(t *testing.T, answer http.HandlerFunc) *service {
	t.Helper()
	s := new(service)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.reached.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// charging is a site whose directive settles what the service's answers cost. Redis
// has time, so that none is decided elsewhere.
func charging(redis, directive string, s *service) string {
	return gateway.Site("servers {\nprotocols h1 h2c\n}\nrate_limit {\nredis "+redis+" {\ntimeout 5s\n}\n}",
		"rate_limit a {\n"+directive+"\n}\nheader >X-Source {http.rate_limit.source}\nreverse_proxy "+s.Listener.Addr().String()+" {\nflush_interval -1\n}")
}

// costs answers with the cost that the request asks for.
func costs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Cost", r.Header.Get("X-Want"))
}

// balance is what the bucket of a tenant holds in Redis, in whole tokens.
func balance(t *testing.T, redis *servertest.RedisServer, tenant string) int {
	t.Helper()
	text, err := redis.Client(t).HGet(t.Context(), "rl:{"+tenant+"}:a", "tokens").Result()
	if err != nil {
		return math.MaxInt
	}
	held, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return int(math.Floor(held))
}

// total is the sum of a metric's series in all of the gateways.
func total(metric string, all ...*gateway.Process) (sum int) {
	for _, g := range all {
		for _, n := range g.Family("caddy_rate_limit_" + metric) {
			sum += int(n)
		}
	}
	return sum
}

// TestGuessesAtOnce: of 1,000 guesses at once on three gateways, five reach the service.
func TestGuessesAtOnce(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newService(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	site := charging(redis.URL(), "limit 5/15m\ncharge status 401\nban 1h 403", s)
	all := []*gateway.Process{gateway.Start(t, site), gateway.Start(t, site), gateway.Start(t, site)}
	var wait sync.WaitGroup
	for i := range 1000 {
		wait.Go(func() {
			if got := all[i%3].Get("/", "t").Status; got != 401 && got != 429 && got != 403 {
				t.Errorf("status %d", got)
			}
		})
	}
	wait.Wait()
	require.EqualValues(t, 5, s.reached.Load())
	for _, g := range all {
		gateway.Eventually(t, 10*time.Second, "the guesser is banned", func() bool { return g.Get("/", "t").Status == 403 })
	}
	require.EqualValues(t, 5, s.reached.Load())
}

// TestGuessAndCancel: streams that are reset when the service has them pay as well.
func TestGuessAndCancel(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	var guesses sync.Map
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		cancel, found := guesses.Load(r.Header.Get("X-Guess"))
		if !found {
			return
		}
		_, _ = io.ReadFull(r.Body, make([]byte, len("password")))
		cancel.(context.CancelFunc)()
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusUnauthorized)
	})
	g := gateway.Start(t, charging(redis.URL(), "limit 5/15m\ncharge status 401\nban 1h 403", s))
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			guesses.Store(strconv.Itoa(i), cancel)
			body, password := io.Pipe() // it goes on until the reset
			go func() {
				_, _ = io.WriteString(password, "password")
				<-ctx.Done()
				_ = password.Close()
			}()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.Addr, body)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header = http.Header{"X-Api-Key": {"t"}, "X-Guess": {strconv.Itoa(i)}}
			if res, err := transport.RoundTrip(req); err == nil {
				res.Body.Close()
			}
		})
	}
	wait.Wait()
	gateway.Eventually(t, 10*time.Second, "the guesser is banned", func() bool { return g.Get("/", "t").Status == 403 })
	require.EqualValues(t, 5, s.reached.Load())
}

// TestChargedToTheUnit: what two gateways at full demand have charged and cut is what
// the answers said.
func TestChargedToTheUnit(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newService(t, costs)
	const capacity = 10_000
	site := charging(redis.URL(), fmt.Sprintf("limit 1/1000s burst %d\ncharge header X-Cost", capacity), s)
	all := []*gateway.Process{gateway.Start(t, site), gateway.Start(t, site)}
	var wait sync.WaitGroup
	said := map[string]*atomic.Int64{"within": {}, "beyond": {}}
	for worker := range 32 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 0))
			for i := range 40 {
				tenant, cost := "within", random.IntN(8)
				if i%2 == 0 {
					tenant, cost = "beyond", 1000+random.IntN(1000)
				}
				got := all[i/2%2].Send(http.MethodGet, "/", http.Header{"X-Api-Key": {tenant}, "X-Want": {strconv.Itoa(cost)}})
				if got.Status == 200 {
					said[tenant].Add(int64(cost))
				} else if got.Status != 429 || tenant == "within" {
					t.Errorf("%s: status %d", tenant, got.Status)
				}
			}
		})
	}
	wait.Wait()
	charged := func(tenant string) int { return capacity - balance(t, redis, tenant) }
	gateway.Eventually(t, 20*time.Second, "all is settled", func() bool {
		return charged("within") == int(said["within"].Load()) &&
			charged("beyond")+total("charges_cut_total", all...) == int(said["beyond"].Load())
	})
	require.Zero(t, total("settlements_lost_total", all...))
}

// TestSettlementsLost: what Redis took with it is counted, and nobody waits for it.
func TestSettlementsLost(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	release := make(chan struct{})
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			<-release
		}
		costs(w, r)
	})
	g := gateway.Start(t, charging(redis.URL(), "limit 1/1000s burst 1000\ncharge header X-Cost", s))
	header := http.Header{"X-Api-Key": {"t"}, "X-Want": {"17"}}
	const n = 20
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			if got := g.Send(http.MethodGet, "/wait", header); got.Status != 200 || got.Source() != "redis" {
				t.Errorf("status %d from %s", got.Status, got.Source())
			}
		})
	}
	gateway.Eventually(t, 20*time.Second, "all are under way", func() bool { return s.reached.Load() == n })
	redis.Kill(t)
	close(release)
	wait.Wait()
	gateway.Eventually(t, 20*time.Second, "what was lost is counted", func() bool { return total("settlements_lost_total", g) == n })
	require.Equal(t, "local", g.Send(http.MethodGet, "/", header).Source())
	redis.Restart(t)
	header.Set("X-Api-Key", "other")
	gateway.Eventually(t, 20*time.Second, "redis decides again", func() bool { return g.Send(http.MethodGet, "/", header).Source() == "redis" })
	before := total("settlements_lost_total", g)
	header.Set("X-Api-Key", "another")
	require.Equal(t, 200, g.Send(http.MethodGet, "/", header).Status)
	gateway.Eventually(t, 20*time.Second, "redis settles again", func() bool { return balance(t, redis, "another") == 1000-17 })
	require.Equal(t, before, total("settlements_lost_total", g))
}

// TestChargeByTheShare: without Redis the gateway settles in its own share, and whom
// its own settlements have banned stays out.
func TestChargeByTheShare(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		costs(w, r)
		if r.URL.Path == "/wrong" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	site := func(charge string) string {
		return strings.Replace(charging(redis.URL(), charge, s), "rate_limit {", "rate_limit {\ninstances 2", 1)
	}
	g := gateway.Start(t, site("limit 1/1000s burst 5\ncharge status 401\nban 1h 403"))
	for range 5 {
		got := g.Get("/wrong", "guesser")
		require.Equal(t, []any{401, "redis"}, []any{got.Status, got.Source()})
	}
	gateway.Eventually(t, 20*time.Second, "the ban has begun", func() bool { return total("bans_total", g) == 1 })
	redis.Kill(t)
	require.Equal(t, 403, g.Get("/", "guesser").Status)

	g.Reload(site("limit 1/1000s burst 100\ncost 5\ncharge header X-Cost"))
	header := http.Header{"X-Api-Key": {"spender"}, "X-Want": {"17"}}
	for i := range 2 {
		got := g.AfterReload(header)
		require.Equal(t, []any{200, "local", 50 - 17*i - 5}, []any{got.Status, got.Source(), got.Remaining()})
	}
	require.Zero(t, total("settlements_lost_total", g))
}
