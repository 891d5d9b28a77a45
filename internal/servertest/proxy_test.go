package servertest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// through returns a client of the proxy whose reads end after 100 ms.
func through(t *testing.T, p *Proxy) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: p.Addr(), Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		DialTimeout: 200 * time.Millisecond, ReadTimeout: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestProxyFaults(t *testing.T) {
	t.Parallel()
	server := Redis(t)
	eval := func(c *redis.Client) error { return c.Eval(context.Background(), "return 1", nil).Err() }
	tests := map[string]struct {
		fault    Fault
		ping     bool // is PING answered under the fault
		eval     bool // is EVAL answered under the fault
		executed int  // does EVAL reach Redis
	}{
		"forward":         {Fault{}, true, true, 1},
		"short delay":     {Fault{ReplyDelay: time.Millisecond, ConnectDelay: time.Millisecond}, true, true, 1},
		"long delay":      {Fault{ReplyDelay: 300 * time.Millisecond}, false, false, 0},
		"silent":          {Fault{Silent: true}, false, false, 0},
		"silent for eval": {Fault{SilentFor: []string{"EVAL", "EVALSHA"}}, true, false, 1},
		"swallow":         {Fault{Swallow: true}, false, false, 0},
		"refuse":          {Fault{Refuse: true}, false, false, 0},
		"cut":             {Fault{CutBeforeReply: []string{"EVAL"}}, true, false, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := NewProxy(t, server.Addr)
			client := through(t, proxy)
			proxy.Set(t, test.fault)
			require.Equal(t, test.ping, client.Ping(t.Context()).Err() == nil, "PING")
			require.Equal(t, test.eval, eval(client) == nil, "EVAL")
			require.Equal(t, test.executed, proxy.Commands("eval"))
			proxy.Set(t, Fault{})
			require.NoError(t, eval(through(t, proxy)), "healed")
		})
	}
}

func TestProxyMovesOnlyNewConnections(t *testing.T) {
	t.Parallel()
	a, b := Redis(t), Redis(t)
	require.NoError(t, a.Client(t).Set(t.Context(), "name", "a", 0).Err())
	require.NoError(t, b.Client(t).Set(t.Context(), "name", "b", 0).Err())
	proxy := NewProxy(t, a.Addr)
	client := through(t, proxy)
	require.Equal(t, "a", client.Get(t.Context(), "name").Val())
	proxy.SetUpstream(b.Addr)
	require.Equal(t, "a", client.Get(t.Context(), "name").Val())
	proxy.CutAll()
	require.Eventually(t, func() bool { return client.Get(t.Context(), "name").Val() == "b" }, 5*time.Second, time.Millisecond)
}

func TestRedisKeepsWhatItIsAskedTo(t *testing.T) {
	t.Parallel()
	server := Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	require.NoError(t, server.Client(t).Set(t.Context(), "k", "v", 0).Err())
	server.Restart(t)
	require.Equal(t, "v", server.Client(t).Get(t.Context(), "k").Val())
	server.Kill(t)
	require.Error(t, server.Client(t).Ping(t.Context()).Err())
	server.Restart(t)
	require.Equal(t, "v", server.Client(t).Get(t.Context(), "k").Val())
	server.Pause(t)
	silent, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, through(t, NewProxy(t, server.Addr)).Ping(silent).Err())
	server.Resume(t)
	require.NoError(t, server.Client(t).Ping(t.Context()).Err())
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	server := RedisTLS(t)
	require.NoError(t, server.Client(t).Ping(t.Context()).Err())
	require.Contains(t, server.URL(), "rediss://")
}

func TestFakeRedis(t *testing.T) {
	t.Parallel()
	server := FakeRedis(t, []byte(":7\r\n"))
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2, MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(t.Context()).Err())
	require.Equal(t, int64(7), client.Eval(t.Context(), "return 7", nil).Val())
	server.AnswerScripts([]byte("*3\r\n:1\r\n"))
	server.CutAfterScripts()
	require.Error(t, client.EvalSha(t.Context(), "0", nil).Err())
	require.Equal(t, 2, server.Calls("eval", "evalsha"))
}

func TestBlackHole(t *testing.T) {
	t.Parallel()
	_, err := net.DialTimeout("tcp", BlackHole(t), 50*time.Millisecond)
	var network net.Error
	require.ErrorAs(t, err, &network)
	require.True(t, network.Timeout(), "%v", err)
}
