package redisbucket

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// decisionTimeout is what one decision may wait where a test is about faults.
const decisionTimeout = patience

// proxied is a started Limiter behind a proxy to a private Redis.
type proxied struct {
	*Limiter
	server *servertest.RedisServer
	proxy  *servertest.Proxy
}

func throughProxy(t *testing.T, o Options) *proxied {
	t.Helper()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	o.URLs = []string{"redis://" + proxy.Addr()}
	p := &proxied{started(t, o), server, proxy}
	p.awaitLanes(t)
	return p
}

// awaitLanes waits until as many lanes are connected as are kept: while the breaker
// is not closed, one.
func (p *proxied) awaitLanes(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		status := p.client.Status()
		return status.Connections >= leastLanes || status.Breaker != "closed" && status.Connections > 0
	}, 10*time.Second, time.Millisecond)
}

// quick asks for one unit within the decision timeout.
func quick(l limit.Limiter, r limit.Rule) (limit.Decision, error) {
	req := ask(r)
	req.Deadline = time.Now().Add(decisionTimeout)
	return l.Take(context.Background(), req)
}

// surely asks for one unit, and waits for so long that no machine is too busy: an error
// is the connection's or Redis'.
func surely(l limit.Limiter, r limit.Rule) (limit.Decision, error) {
	req := ask(r)
	req.Deadline = time.Now().Add(20 * time.Second)
	return l.Take(context.Background(), req)
}

// realTimeout is what a decision may wait by default, once it comes from a gateway.
const realTimeout = 5 * time.Millisecond

// soon asks for one unit within the real timeout.
func soon(l limit.Limiter, r limit.Rule) (limit.Decision, error) {
	req := ask(r)
	req.Deadline = time.Now().Add(realTimeout)
	return l.Take(context.Background(), req)
}

// quickAtOnce asks n times at once and returns how many were granted, and the
// reasons of the errors.
func quickAtOnce(l limit.Limiter, r limit.Rule, n int) (granted int, reasons map[string]int) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	reasons = make(map[string]int)
	for range n {
		wait.Go(func() {
			d, err := quick(l, r)
			mu.Lock()
			defer mu.Unlock()
			granted += int(d.Granted)
			if err != nil {
				reasons[Reason(err)]++
			}
		})
	}
	wait.Wait()
	return granted, reasons
}

// TestT1Budget holds replies far longer than a decision may wait. A deadline that
// allows for a busy machine would let a small fault through, so that the best of
// three is held to a tight one.
func TestT1Budget(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	slow, silent := servertest.NewProxy(t, server.Addr), servertest.NewProxy(t, server.Addr)
	slow.Set(t, servertest.Fault{ReplyDelay: 5 * time.Second})
	silent.Set(t, servertest.Fault{Silent: true})
	for name, addr := range map[string]string{
		"replies take 5 s":                slow.Addr(),
		"accepted and never answered":     silent.Addr(),
		"connection attempts are lost":    servertest.BlackHole(t),
		"connection attempts are refused": servertest.FreeAddr(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, err := NewClient(Options{URLs: []string{"redis://" + addr}})
			require.NoError(t, err)
			stop := node.Start(nil)
			defer stop()
			l := New(node, "")
			best := time.Hour
			for range 3 {
				begin := time.Now()
				_, err := soon(l, rule(t, 10, 0.001))
				took := time.Since(begin)
				require.Error(t, err)
				require.Less(t, took, patience)
				best = min(best, took)
				t.Logf("%s after %s", Reason(err), took)
			}
			require.Less(t, best, 60*time.Millisecond)
			node.Warm(t.Context())
		})
	}
}

func TestT2LostReply(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	take(t, p, rule(t, 10, 0.001))
	require.NoError(t, p.Reset(t.Context(), theKey))
	before := p.server.CommandCalls(t, "eval", "evalsha")
	p.proxy.Set(t, servertest.Fault{CutBeforeReply: []string{"EVAL", "EVALSHA"}})
	_, err := quick(p, rule(t, 10, 0.001))
	require.Equal(t, "connection", Reason(err))
	client := p.server.Client(t)
	require.Equal(t, "9", client.HGet(t.Context(), tokenKey, "tokens").Val())
	require.Equal(t, before+1, p.server.CommandCalls(t, "eval", "evalsha"), "asked once")
}

// TestT3Dialling asks within the real timeout, in which a decision that waited for
// a connection could not be made, and counts connections, which would be made for
// each. A busy machine is late now and then without a fault, and each answer that
// is late costs its connection; five in a row open the breaker, which costs all.
func TestT3Dialling(t *testing.T) {
	t.Parallel()
	plain, other := servertest.Redis(t), servertest.Redis(t)
	late, slow := servertest.NewProxy(t, plain.Addr), servertest.NewProxy(t, other.Addr)
	late.Set(t, servertest.Fault{ConnectDelay: 10 * time.Millisecond})
	slow.Set(t, servertest.Fault{ReplyDelay: 2 * time.Millisecond})
	secure := servertest.RedisTLS(t)
	certificate := secure.Certificate
	for name, test := range map[string]struct {
		server  *servertest.RedisServer
		options Options
	}{
		"TLS": {secure, Options{URLs: []string{secure.URL()}, TLS: TLS{CAFile: certificate.CertFile}}},
		"TLS with a client certificate": {
			servertest.RedisTLS(t, "--tls-auth-clients", "no"),
			Options{TLS: TLS{CAFile: certificate.CertFile, CertFile: certificate.CertFile, KeyFile: certificate.KeyFile}},
		},
		"connecting takes 10 ms": {plain, Options{URLs: []string{"redis://" + late.Addr()}}},
		"replies take 2 ms":      {other, Options{URLs: []string{"redis://" + slow.Addr()}}},
	} {
		if len(test.options.URLs) == 0 {
			test.options.URLs = []string{test.server.URL()}
			test.options.TLS.CAFile = test.server.Certificate.CertFile
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := started(t, test.options)
			r := rule(t, 1_000_000, 1)
			client := test.server.Client(t)
			for _, when := range []string{"at start", "after CLIENT KILL"} {
				begin, decided, dialled := time.Now(), 0, 50
				for decided < 45 || dialled > mostLanes+5 {
					require.Less(t, time.Since(begin), 20*time.Second, "%s: %d of 50 decided", when, decided)
					before := accepted(t, client)
					decided = 0
					for range 50 {
						if _, err := soon(l, r); err == nil {
							decided++
						}
					}
					dialled = accepted(t, client) - before
				}
				t.Logf("%s: %d of 50 decided after %s, %d connections made", when, decided, time.Since(begin), dialled)
				require.NoError(t, client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
			}
		})
	}
}

// accepted returns how many the server has accepted so far.
func accepted(t *testing.T, client *redis.Client) int {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "stats").Result()
	require.NoError(t, err)
	return int(mustInt(t, info["Stats"]["total_connections_received"]))
}

// TestClientKillCostsAtMostOneAnswer: what cut one connection may have cut all,
// so none is lent again before it has answered.
func TestClientKillCostsAtMostOneAnswer(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	r := rule(t, 1_000_000, 1)
	require.NoError(t, p.server.Client(t).ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	var failed []string
	for range 50 {
		if _, err := surely(p, r); err != nil {
			failed = append(failed, Reason(err)+": "+err.Error())
		}
	}
	require.LessOrEqual(t, len(failed), 1, "%q", failed)
	require.Equal(t, "closed", p.client.Status().Breaker)
}
