package redisbucket

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	node, err := NewClient(Options{URLs: []string{server.URL()}})
	require.NoError(t, err)
	l, r := New(node, ""), rule(t, 10, 0.001)
	reason := func() string {
		_, err := l.Take(t.Context(), ask(r))
		return Reason(err)
	}
	require.Equal(t, "not_started", reason())
	require.Equal(t, "not_started", Reason(l.Reset(t.Context(), theKey)))
	node.Warm(t.Context())
	first, second := node.Start(nil), node.Start(nil)
	node.Warm(t.Context())
	require.Empty(t, reason())
	first()
	first()
	require.Empty(t, reason(), "someone else still uses it")
	second()
	require.Equal(t, "not_started", reason())
	require.Zero(t, node.Status().Connections)
	third := node.Start(nil)
	node.Warm(t.Context())
	require.Empty(t, reason())
	require.Equal(t, server.Addr+"/0", node.Status().Address)
	require.EqualValues(t, 3, node.Status().Nodes[0].Traffic.Entries, "those that were answered")
	require.NoError(t, node.Destruct())
	require.NoError(t, node.Destruct())
	require.Equal(t, "closed", reason())
	third()
	node.Start(nil)()
	require.Equal(t, "closed", reason())
	asking := server.Client(t)
	require.Eventually(t, func() bool {
		clients, err := asking.ClientList(t.Context()).Result()
		return err == nil && strings.Count(clients, "\n") == 1
	}, 10*time.Second, 10*time.Millisecond, "no connection is left but the asking one")
}

// TestStopWhileAsking stops under traffic.
func TestStopWhileAsking(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	node, err := NewClient(Options{URLs: []string{server.URL()}})
	require.NoError(t, err)
	l, r := New(node, ""), rule(t, 10, 0.001)
	var wait sync.WaitGroup
	done := make(chan struct{})
	for range 8 {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = quick(l, r)
				}
			}
		})
	}
	for range 10 {
		stop := node.Start(nil)
		node.Warm(t.Context())
		stop()
	}
	require.NoError(t, node.Destruct())
	close(done)
	wait.Wait()
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	l := started(t, Options{URLs: []string{servertest.FakeRedis(t, nil).URL()}})
	good := ask(rule(t, 10, 0.001))
	for _, req := range []limit.Request{{}, {Buckets: good.Buckets}, {Buckets: good.Buckets, Cost: 1, Count: -1}} {
		_, err := l.Take(t.Context(), req)
		require.Error(t, err)
	}
	require.Equal(t, "closed", l.client.Status().Breaker)
}

// TestSucceedBy asks a Node's successor once the Node is stopped, also where the
// two have succeeded each other.
func TestSucceedBy(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	before, err := NewClient(Options{URLs: []string{server.URL()}})
	require.NoError(t, err)
	stop := before.Start(nil)
	l := New(before, "")
	_, err = quick(l, rule(t, 10, 0.001))
	require.NoError(t, err)
	after := started(t, Options{URLs: []string{server.URL()}, DialTimeout: 2 * time.Second})
	before.SucceedBy(after.Client())
	after.Client().SucceedBy(before)
	stop()
	require.NoError(t, before.Destruct())
	decision, err := quick(l, rule(t, 10, 0.001))
	require.NoError(t, err)
	require.EqualValues(t, 8, decision.First.Remaining)
	require.NoError(t, l.Reset(t.Context(), theKey))
	require.NoError(t, after.Client().Destruct())
	_, err = quick(l, rule(t, 10, 0.001))
	require.Error(t, err)
}
