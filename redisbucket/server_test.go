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

func TestF8Policy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want []Event
	}{
		"evicting":   {[]string{"--maxmemory-policy", "allkeys-lru"}, []Event{{Kind: EvictingPolicy, Detail: "allkeys-lru"}}},
		"noeviction": {[]string{"--maxmemory-policy", "noeviction"}, nil},
		"no right":   {[]string{"--maxmemory-policy", "allkeys-lru", "--user", "default on nopass ~* +@all -info -config"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			observed := &observed{}
			node := observed.start(t, Options{URLs: []string{policyServer(t, test.args)}})
			require.Eventually(t, func() bool {
				return node.Status().Connections >= leastLanes && len(observed.get()) == len(test.want)
			}, 10*time.Second, time.Millisecond)
			for i, event := range observed.get() {
				require.Equal(t, test.want[i].Kind, event.Kind)
				require.Equal(t, test.want[i].Detail, event.Detail)
			}
			require.Empty(t, node.Status().LastReason)
		})
	}
}

// policyServer starts a Redis whose user may be barred from INFO: the helper's
// own readiness check needs it, so the right is taken away afterwards.
func policyServer(t *testing.T, args []string) string {
	t.Helper()
	if len(args) < 4 {
		return servertest.Redis(t, args...).URL()
	}
	server := servertest.Redis(t, args[:2]...)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "default", "-info", "-config").Err())
	return server.URL()
}

func TestVersionTooOld(t *testing.T) {
	t.Parallel()
	hello := func(server, version string) []byte {
		return append([]byte("*4\r\n$6\r\nserver\r\n"+string(servertest.BulkReply(server))+"$7\r\nversion\r\n"), servertest.BulkReply(version)...)
	}
	for name, test := range map[string]struct {
		hello, info []byte
		refused     string
	}{
		"Redis 6.0":         {hello("redis", "6.0.16"), nil, "6.0.16"},
		"Redis 6.2":         {hello("redis", "6.2.0"), nil, ""},
		"Redis 10":          {hello("redis", "10.0.0"), nil, ""},
		"Valkey":            {hello("valkey", "8.1.0"), nil, ""},
		"another one":       {hello("other", "1.0.0"), nil, ""},
		"Redis 5":           {[]byte("-ERR unknown command `HELLO`\r\n"), servertest.BulkReply("# Server\r\nredis_version:5.0.14\r\n"), "5.0.14"},
		"Valkey by INFO":    {[]byte("-NOPERM no\r\n"), servertest.BulkReply("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n"), ""},
		"a first Valkey":    {[]byte("-NOPERM no\r\n"), servertest.BulkReply("# Server\r\nredis_version:0.0.1\r\nserver_name:valkey\r\nvalkey_version:1.0.0\r\n"), ""},
		"no HELLO, no INFO": {[]byte("-ERR unknown command `HELLO`\r\n"), []byte("-NOPERM no\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := servertest.FakeRedis(t, []byte("*4\r\n:1\r\n:9\r\n:0\r\n:1\r\n"))
			fake.Answer("HELLO", test.hello)
			if test.info != nil {
				fake.Answer("INFO", test.info)
			}
			observed := &observed{}
			node := observed.start(t, Options{URLs: []string{fake.URL()}})
			_, err := quick(New(node, ""), rule(t, 10, 0.001))
			if test.refused == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, "version", Reason(err))
			require.ErrorContains(t, err, test.refused)
			require.Eventually(t, func() bool { return len(observed.get()) > 0 }, 10*time.Second, time.Millisecond)
			require.Equal(t, VersionTooOld, observed.get()[0].Kind)
			require.Equal(t, test.refused, observed.get()[0].Detail)
		})
	}
}

// observed collects a node's events.
type observed struct {
	mu     sync.Mutex
	events []Event
}

func (o *observed) start(t *testing.T, options Options) *Client {
	t.Helper()
	node, err := NewClient(options)
	require.NoError(t, err)
	stop := node.Start(func(e Event) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.events = append(o.events, e)
	})
	t.Cleanup(stop)
	node.Warm(t.Context())
	return node
}

func (o *observed) get() []Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Event(nil), o.events...)
}

func TestPasswordAndUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := servertest.Redis(t, "--requirepass", "s3cret", "--unixsocket", dir+"/s")
	l := started(t, Options{URLs: []string{"redis://:s3cret@" + server.Addr}})
	take(t, l, rule(t, 10, 0.001))
	unix := started(t, Options{URLs: []string{"unix://:s3cret@" + dir + "/s?db=1"}})
	require.Equal(t, int64(9), take(t, unix, rule(t, 10, 0.001)).First.Remaining)
	for _, password := range []string{"", ":wrong@"} {
		wrong := started(t, Options{URLs: []string{"redis://" + password + server.Addr}})
		_, err := quick(wrong, rule(t, 10, 0.001))
		require.Equal(t, "noauth", Reason(err), "%v", err)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// TestLeastRights runs with the rights that the script and the connection need.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	rights := "acl setuser limiter on >pw resetkeys ~rl:* nocommands +eval +evalsha +ping +time +del +pttl +pexpire +hmget +hset " +
		"+zadd +zcard +zcount +zrem +zrangebyscore +zrevrange +zrevrangebyscore +zremrangebyrank"
	var command []any
	for word := range strings.FieldsSeq(rights) {
		command = append(command, word)
	}
	require.NoError(t, server.Client(t).Do(t.Context(), command...).Err())
	l := started(t, Options{URLs: []string{"redis://limiter:pw@" + server.Addr}})
	for range 3 {
		for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
			take(t, l, ruleOf(t, algorithm, 2, 0.001))
		}
	}
	require.NoError(t, l.Reset(t.Context(), theKey))
	require.Empty(t, l.client.Status().LastReason)

	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "limiter", "-hset").Err())
	_, err := quick(l, rule(t, 3, 0.001))
	require.Equal(t, "noperm", Reason(err), "%v", err)
}

// TestO2ScriptCache: one text whatever the rules are.
func TestO2ScriptCache(t *testing.T) {
	t.Parallel()
	b := onRedis(t)
	for i := range 1000 {
		algorithm := limit.TokenBucket + limit.Algorithm(i%3)
		take(t, b, ruleOf(t, algorithm, int64(i+1), 0.5+float64(i)))
	}
	text, err := b.redis.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	_, rest, found := strings.Cut(text, "number_of_cached_scripts:")
	require.True(t, found)
	number, _, _ := strings.Cut(rest, "\r")
	require.LessOrEqual(t, mustInt(t, number), int64(2))
}
