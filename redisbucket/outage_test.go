package redisbucket

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestF6ReadOnly(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{})
	successor := servertest.Redis(t)
	r := rule(t, 1000, 0.001)
	take(t, p, r)
	host, port, _ := strings.Cut(successor.Addr, ":")
	require.NoError(t, p.server.Client(t).ReplicaOf(t.Context(), host, port).Err())
	p.proxy.SetUpstream(successor.Addr)
	reasons := map[string]bool{}
	begin := time.Now()
	require.Eventually(t, func() bool {
		d, err := quick(p, r)
		reasons[Reason(err)] = true
		return err == nil && d.Granted == 1
	}, 20*DefaultBreakerOpen, 10*time.Millisecond)
	t.Logf("decided by the new master after %s, after %v", time.Since(begin), reasons)
	exists, err := successor.Client(t).Exists(t.Context(), tokenKey).Result()
	require.NoError(t, err)
	require.Equal(t, int64(1), exists)
	for range 20 {
		take(t, p, r)
	}
}

// TestF6OneRefusalIsEnough has a master become a replica when hardly anyone asks:
// one answer of it makes all connections anew, not each its own.
func TestF6OneRefusalIsEnough(t *testing.T) {
	t.Parallel()
	p := throughProxy(t, Options{Breaker: Breaker{Failures: 1000}})
	successor := servertest.Redis(t)
	r := rule(t, 1000, 0.001)
	take(t, p, r)
	p.awaitLanes(t)
	host, port, _ := strings.Cut(successor.Addr, ":")
	require.NoError(t, p.server.Client(t).ReplicaOf(t.Context(), host, port).Err())
	p.proxy.SetUpstream(successor.Addr)
	refused := 0
	for range 3 * mostLanes {
		if _, err := surely(p, r); err != nil {
			require.Equal(t, "readonly", Reason(err))
			refused++
		}
	}
	require.Equal(t, 1, refused)
	p.awaitLanes(t)
}

func TestF7NoScript(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	l := started(t, Options{URLs: []string{server.URL()}})
	r := rule(t, 100, 0.001)
	require.Equal(t, int64(99), take(t, l, r).First.Remaining)
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	require.Equal(t, int64(98), take(t, l, r).First.Remaining)
	require.Empty(t, l.client.Status().LastReason, "no failure so far")
	server.Restart(t)
	var d limit.Decision
	require.Eventually(t, func() bool {
		var err error
		d, err = quick(l, r)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, int64(97), d.First.Remaining)
	require.NoError(t, server.Client(t).ScriptFlush(t.Context()).Err())
	granted, reasons := quickAtOnce(l, r, 50)
	require.Empty(t, reasons)
	require.Equal(t, 50, granted)
	require.Equal(t, "closed", l.client.Status().Breaker)
}

func TestF8FullRedis(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--maxmemory-policy", "noeviction")
	l := started(t, Options{URLs: []string{server.URL()}})
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := quick(l, rule(t, 10, 0.001))
	require.Equal(t, "oom", Reason(err), "%v", err)
}

func TestF9StartInAnOutage(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"refused": servertest.FreeAddr(t), "black hole": servertest.BlackHole(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			node, err := NewClient(Options{URLs: []string{"redis://" + addr}})
			require.NoError(t, err)
			stop := node.Start(nil)
			_, err = quick(New(node, ""), rule(t, 10, 0.001))
			require.Error(t, err)
			node.Warm(t.Context())
			stop()
			require.NoError(t, node.Destruct())
			require.Less(t, time.Since(begin), 20*time.Second)
		})
	}
}

// TestRecovery starts while Redis is away and needs nothing to find it later.
func TestRecovery(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	proxy.Set(t, servertest.Fault{Refuse: true})
	observed := &observed{}
	l := New(observed.start(t, Options{URLs: []string{"redis://" + proxy.Addr()}}), "")
	r := rule(t, 1000, 0.001)
	require.Eventually(t, func() bool {
		_, err := quick(l, r)
		return Reason(err) == "breaker_open"
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, "connection", l.client.Status().LastReason)
	proxy.Set(t, servertest.Fault{})
	require.Eventually(t, func() bool {
		_, err := quick(l, r)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	ofBreaker := func() []Event {
		return slices.DeleteFunc(slices.Clone(observed.get()), func(event Event) bool {
			return event.Kind != BreakerOpened && event.Kind != BreakerClosed
		})
	}
	require.Eventually(t, func() bool { return len(ofBreaker()) == 2 }, 10*time.Second, time.Millisecond)
	events := ofBreaker()
	require.Equal(t, BreakerOpened, events[0].Kind)
	require.Equal(t, "connection", events[0].Detail)
	require.Equal(t, BreakerClosed, events[1].Kind)
	require.Equal(t, proxy.Addr()+"/0", events[1].Address)
}
