package redisbucket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestIdentities: what is talked to, however the URLs are written.
func TestIdentities(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Options{
		"a:6379/1":                         {URLs: []string{"redis://u:p@a/1"}},
		"cluster a:6379":                   {URLs: []string{"redis://u:p@a"}, Mode: ModeCluster},
		"cluster a:6379,b:7":               {URLs: []string{"redis://u:p@b:7", "redis://u:p@a"}},
		"sentinel m/2 a:26379,b:1":         {URLs: []string{"redis://u:p@b:1/2", "redis://u:p@a/2"}, Mode: ModeSentinel, Master: "m"},
		"sentinel m/0 [::1]:26379,b:26379": {URLs: []string{"redis://b", "redis://[::1]"}, Mode: ModeSentinel, Master: "m", SentinelPassword: "p"},
	} {
		require.NoError(t, o.Validate(), want)
		require.Equal(t, want, o.Identity())
	}
}

// TestPoolKeyOfSeveral: the order does not matter, and everything else does.
func TestPoolKeyOfSeveral(t *testing.T) {
	t.Parallel()
	two, other := []string{"redis://a", "redis://b"}, []string{"redis://b", "redis://a"}
	require.Equal(t, Options{URLs: two}.PoolKey(), Options{URLs: other}.PoolKey())
	require.Equal(t, Options{URLs: two}.PoolKey(), Options{URLs: two, Mode: ModeCluster}.PoolKey())
	keys := map[string]int{}
	for i, o := range []Options{
		{URLs: two},
		{URLs: two[:1]},
		{URLs: two[:1], Mode: ModeCluster},
		{URLs: []string{"redis://a", "redis://c"}},
		{URLs: []string{"redis://:p@a", "redis://:p@b"}},
		{URLs: two, Mode: ModeSentinel, Master: "m"},
		{URLs: two, Mode: ModeSentinel, Master: "n"},
		{URLs: two, Mode: ModeSentinel, Master: "m", SentinelPassword: "p"},
		{URLs: two, Mode: ModeSentinel, Master: "m", SentinelUser: "p", SentinelPassword: "p"},
	} {
		key := o.PoolKey()
		require.NotContains(t, keys, key, "%d and %d", i, keys[key])
		keys[key] = i
	}
	require.Equal(t, []string{"redis://a", "redis://b"}, two, "the caller's list is as it was")
}

// TestClusterOfOne is no cluster: the first thing that is said is that.
func TestClusterOfOne(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	seen := &observed{}
	client := seen.start(t, Options{URLs: []string{server.URL()}, Mode: ModeCluster})
	l := New(client, "")
	_, err := quick(l, rule(t, 10, 1))
	require.Equal(t, "no_cluster", Reason(err))
	require.Eventually(t, func() bool { return len(seen.get()) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, NoCluster, seen.get()[0].Kind)
	status := client.Status()
	require.Equal(t, []any{"open", "no_cluster", "cluster " + server.Addr}, []any{status.Breaker, status.LastReason, status.Address})
}

// TestWrongMode has each mode meet what it does not fit: the reason, and the first
// thing that is said, tell which mode it should be.
func TestWrongMode(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	sentinel := servertest.Sentinels(t, servertest.SentinelOptions{}).URLs()[0]
	for name, test := range map[string]struct {
		options Options
		reason  string
		kind    EventKind
	}{
		"a server as a cluster":    {Options{URLs: []string{server.URL()}, Mode: ModeCluster}, "no_cluster", NoCluster},
		"a server as a sentinel":   {Options{URLs: []string{server.URL()}, Mode: ModeSentinel, Master: "m"}, "no_sentinel", NoSentinel},
		"a sentinel as a server":   {Options{URLs: []string{sentinel}}, "sentinel", SentinelServer},
		"a sentinel as a cluster":  {Options{URLs: []string{sentinel}, Mode: ModeCluster}, "no_cluster", NoCluster},
		"another name of a master": {Options{URLs: []string{sentinel}, Mode: ModeSentinel, Master: "m"}, "unknown_master", UnknownMaster},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := &observed{}
			client := seen.start(t, test.options)
			_, err := quick(New(client, ""), rule(t, 10, 1))
			require.Equal(t, test.reason, Reason(err), "%v", err)
			require.Eventually(t, func() bool { return len(seen.get()) > 0 }, 10*time.Second, time.Millisecond)
			require.Equal(t, test.kind, seen.get()[0].Kind)
			require.Equal(t, test.reason, client.Status().LastReason)
		})
	}
}

// TestReadSlots reads what servers say of themselves in their several ways.
func TestReadSlots(t *testing.T) {
	t.Parallel()
	row := func(first, last int64, host any, port int64) any {
		return []any{first, last, []any{host, port, "id", []any{}}, []any{"replica", int64(1), "id"}}
	}
	got, err := readSlots([]any{row(0, 5, "a", 1), row(6, 9, nil, 2), row(10, 11, "", 2), row(12, 12, "?", 3), row(13, 14, "a", 1), row(15, 16, "::1", 4)}, "me:7")
	require.NoError(t, err)
	require.Equal(t, []master{
		{"a:1", []slotRange{{0, 5}, {13, 14}}},
		{"me:2", []slotRange{{6, 9}, {10, 11}}},
		{"me:3", []slotRange{{12, 12}}},
		{"[::1]:4", []slotRange{{15, 16}}},
	}, got)
	named := func(port int64, more ...any) any {
		return []any{int64(0), int64(1), []any{"?", port, "id", more}}
	}
	got, err = readSlots([]any{named(1, "ip", "10.0.0.9"), named(2, "hostname", "x", "ip", "::1"), named(3, "ip"), named(4, "ip", int64(5))}, "me:7")
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.9:1", "[::1]:2", "me:3", "me:4"}, []string{got[0].host, got[1].host, got[2].host, got[3].host},
		"one without a name, where names are preferred, is at its address")
	for name, reply := range map[string]any{
		"no list": "x", "no row": []any{"x"}, "short": []any{[]any{int64(0), int64(1)}}, "no port": []any{[]any{int64(0), int64(1), []any{"a"}}},
		"backwards": []any{row(5, 4, "a", 1)}, "beyond": []any{row(0, slotCount, "a", 1)}, "negative": []any{row(-1, 4, "a", 1)}, "port 0": []any{row(0, 4, "a", 0)},
	} {
		_, err := readSlots(reply, "me:7")
		require.Equal(t, "reply", Reason(err), name)
	}
}

// TestRedirects reads where a reply sends to.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]redirect{
		"MOVED 3999 127.0.0.1:6381":     {host: "127.0.0.1:6381"},
		"MOVED 3999 :6381":              {host: "me:6381"},
		"ASK 3999 ::1:6381":             {host: "[::1]:6381", ask: true},
		"ASK 3999 host.example:6381":    {host: "host.example:6381", ask: true},
		"MOVED 3999":                    {},
		"MOVED 3999 nowhere":            {},
		"MOVED 3999 host:port":          {},
		"MOVED 3999 host:":              {},
		"MOVED 3999 host:0":             {},
		"MOVED 3999 ?:6381":             {},
		"CLUSTERDOWN Hash slot is gone": {},
	} {
		got := redirectIn(followed(replyError(text), "me:7"))
		if want.host == "" {
			require.Nil(t, got, text)
			continue
		}
		require.Equal(t, []any{want.host, want.ask, text}, []any{got.host, got.ask, got.Error()})
		require.Equal(t, "moved", Reason(got))
	}
	require.Equal(t, 12739, int(slotOf([]byte("123456789"))), "the specification's own example: 0x31c3")
	require.Equal(t, slotOf([]byte("{user1000}.following")), slotOf([]byte("user1000")))
	require.NotEqual(t, slotOf([]byte("foo{}{bar}")), slotOf([]byte("bar")))
	require.Equal(t, slotOf([]byte("foo{{bar}}zap")), slotOf([]byte("{bar")))
}
