package fleet

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/redisbucket"
)

// shortRhythm is a rhythm for tests, in the usual proportions but for the disagreement.
func shortRhythm() rhythm {
	return rhythm{50 * time.Millisecond, 500 * time.Millisecond, time.Second, time.Second}
}

// fellow is one process of a fleet.
type fellow struct {
	*Heartbeat
	client *redisbucket.Client
	stop   func() // of the heartbeat

	rules atomic.Pointer[string]

	mu   sync.Mutex
	told []Event
}

func newFellow(t testing.TB, urls ...string) *fellow {
	t.Helper()
	f := &fellow{Heartbeat: newHeartbeat("rl", shortRhythm(), time.Now), client: started(t, urls...)}
	f.hasRules("aa")
	return f
}

func join(t testing.TB, url string, until int64) *fellow {
	t.Helper()
	f := newFellow(t, url)
	f.stop = f.start(until)
	t.Cleanup(f.stop)
	return f
}

func (f *fellow) start(until int64) (stop func()) {
	return f.Start(f.client, Options{Reason: redisbucket.Reason, Until: until, Rules: func() string { return *f.rules.Load() }, Observe: f.observe})
}

func (f *fellow) hasRules(hash string) { f.rules.Store(&hash) }

func (f *fellow) observe(event Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, event)
}

// times returns how often an event was told.
func (f *fellow) toldOf(kind EventKind) (times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, event := range f.told {
		if event.Kind == kind {
			times++
		}
	}
	return times
}

// awaitAll waits until every one knows n.
func awaitAll(t testing.TB, what string, n int64, fellows ...*fellow) {
	t.Helper()
	for _, f := range fellows {
		require.Eventually(t, func() bool { return f.Instances(99) == n }, 20*time.Second, 5*time.Millisecond, what)
	}
}

func TestHeartbeatJoinAndLeave(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	a := newFellow(t, redis.URL())
	require.Equal(t, int64(7), a.Instances(7), "nothing is known")
	require.Equal(t, int64(1), a.Instances(0), "never 0")
	stop := a.start(1)
	t.Cleanup(stop)
	awaitAll(t, "one", 1, a)
	b := join(t, redis.URL(), 1)
	awaitAll(t, "a second joins", 2, a, b)
	c := join(t, redis.URL(), 1)
	awaitAll(t, "a third joins", 3, a, b, c)
	require.NotEqual(t, a.Status().ID, b.Status().ID)

	left := time.Now()
	c.stop()
	require.Eventually(t, func() bool { return a.Status().Counted == 2 }, 20*time.Second, time.Millisecond)
	require.Equal(t, int64(3), a.Instances(1), "one has left, and may be back")
	awaitAll(t, "it is not back", 2, a, b)
	require.GreaterOrEqual(t, time.Since(left), shortRhythm().hold)
	require.Equal(t, int64(3), c.Instances(1), "who has left knows what it knew")
	stop()
	b.stop()
	require.Zero(t, redis.Client(t).Exists(t.Context(), seenKey, rulesKey).Val(), "nobody is left")
}

// TestHeartbeatOverAReload starts the next configuration before the last one stops,
// a hundred times: nobody is counted twice, and nobody is ever gone.
func TestHeartbeatOverAReload(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	a, b := newFellow(t, server.URL()), join(t, server.URL(), 1)
	stop := a.start(1)
	awaitAll(t, "both", 2, a, b)
	client := server.Client(t)
	for i := range 100 {
		next := a.start(int64(i))
		stop()
		stop()
		stop = next
		require.Equal(t, int64(2), client.ZCard(t.Context(), seenKey).Val())
		require.Equal(t, int64(2), a.Instances(9))
	}
	// A configuration that is given up at once leaves the other in charge.
	a.start(1)()
	at := a.Status().Answered
	require.Eventually(t, func() bool { return a.Status().Answered.After(at) }, 20*time.Second, time.Millisecond)
	stop()
	require.Equal(t, int64(1), client.ZCard(t.Context(), seenKey).Val())
	require.LessOrEqual(t, b.toldOf(InstancesChanged), 2, "the other has seen both join, and nothing since")
}

// TestHeartbeatInAnOutage cuts all off at once: they keep the number, also when the
// first to be back sees nobody.
func TestHeartbeatInAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxies := []*servertest.Proxy{servertest.NewProxy(t, server.Addr), servertest.NewProxy(t, server.Addr), servertest.NewProxy(t, server.Addr)}
	var all []*fellow
	for _, proxy := range proxies {
		all = append(all, join(t, "redis://"+proxy.Addr(), 1))
	}
	awaitAll(t, "all are there", 3, all...)
	for _, proxy := range proxies {
		proxy.Set(t, servertest.Fault{Refuse: true})
	}
	for _, f := range all {
		require.Eventually(t, func() bool { return f.toldOf(HeartbeatLost) == 1 }, 20*time.Second, 5*time.Millisecond)
		require.Equal(t, int64(3), f.Instances(1))
		require.NotEmpty(t, f.Status().LastReason)
	}
	for i, proxy := range proxies {
		proxy.Set(t, servertest.Fault{})
		require.Eventually(t, func() bool { return all[i].toldOf(HeartbeatBack) == 1 }, 20*time.Second, time.Millisecond)
		for _, f := range all {
			require.Equal(t, int64(3), f.Instances(1), "%d are back", i+1)
		}
	}
	awaitAll(t, "all are back", 3, all...)
	require.Equal(t, "closed", all[0].client.Status().Breaker, "heartbeats do not open the breaker")
}

// TestHeartbeatAfterALossOfData restarts Redis empty.
func TestHeartbeatAfterALossOfData(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t, "--save", "")
	a, b := join(t, server.URL(), 1), join(t, server.URL(), 1)
	awaitAll(t, "both", 2, a, b)
	server.Restart(t)
	at := time.Now()
	for _, f := range []*fellow{a, b} {
		require.Eventually(t, func() bool { return f.Status().Answered.After(at) && f.Status().Counted == 2 }, 20*time.Second, time.Millisecond)
		require.Equal(t, int64(2), f.Instances(1))
		require.LessOrEqual(t, f.toldOf(InstancesChanged), 2, "only as they joined")
	}
}

// TestHeartbeatDisagree gives one of three other rules.
func TestHeartbeatDisagree(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	all := []*fellow{join(t, server.URL(), 1), join(t, server.URL(), 1), join(t, server.URL(), 1)}
	awaitAll(t, "all are there", 3, all...)
	all[2].hasRules("")
	for _, f := range all {
		require.Eventually(t, func() bool { return f.toldOf(RulesDisagree) == 1 }, 20*time.Second, 5*time.Millisecond)
		fleet := f.Status()
		require.Equal(t, int64(1), fleet.Disagree())
		require.Equal(t, []Group{{"aa", 2}, {NoRules, 1}}, fleet.Rules)
		require.Equal(t, int64(3), f.Instances(1), "nobody is counted twice")
	}
	all[2].hasRules("aa")
	for _, f := range all {
		require.Eventually(t, func() bool { return f.toldOf(RulesAgree) == 1 }, 20*time.Second, 5*time.Millisecond)
		require.Zero(t, f.Status().Disagree())
	}
}

// TestHeartbeatLosesAnswers changes the rules while each answer is lost: what the
// process was called before does not stay behind.
func TestHeartbeatLosesAnswers(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	a := join(t, "redis://"+proxy.Addr(), 1)
	awaitAll(t, "it is there", 1, a)
	client := server.Client(t)
	proxy.Set(t, servertest.Fault{CutBeforeReply: []string{"EVALSHA", "EVAL"}})
	for _, hash := range []string{"bb", "cc"} {
		a.hasRules(hash)
		require.Eventually(t, func() bool {
			return client.ZScore(t.Context(), rulesKey, hash+"/"+a.id).Err() == nil
		}, 20*time.Second, 5*time.Millisecond)
	}
	a.hasRules("dd")
	proxy.Set(t, servertest.Fault{})
	require.Eventually(t, func() bool {
		return a.Status().LastReason == "" && len(a.Status().Rules) == 1 && a.Status().Rules[0].Hash == "dd"
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, int64(1), client.ZCard(t.Context(), seenKey).Val())
	require.Equal(t, int64(1), a.Instances(1))
}

// TestHeartbeatGoesByRedisClock has processes whose clocks are a day behind, a year
// ahead, and stand still.
func TestHeartbeatGoesByRedisClock(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	var all []*fellow
	for _, clock := range []func() time.Time{
		func() time.Time { return time.Now().Add(-24 * time.Hour) },
		func() time.Time { return time.Now().Add(365 * 24 * time.Hour) },
		func() time.Time { return time.Unix(0, 0) },
	} {
		f := newFellow(t, server.URL())
		f.clock = clock
		f.stop = f.start(1)
		t.Cleanup(f.stop)
		all = append(all, f)
	}
	awaitAll(t, "all are counted", 3, all...)
	all[0].stop()
	require.Eventually(t, func() bool { return all[2].Status().Counted == 2 }, 20*time.Second, 5*time.Millisecond)
	awaitAll(t, "one has left", 2, all[1])
}

// TestHeartbeatSparesRequests has Redis refuse heartbeats alone: requests go on,
// and the breaker stays closed.
func TestHeartbeatSparesRequests(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	a := join(t, "redis://"+proxy.Addr(), 3)
	require.Eventually(t, func() bool { return a.Status().Counted == 1 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "default", "-zadd").Err())
	l := redisbucket.New(a.client, "")
	require.Eventually(t, func() bool { return a.toldOf(HeartbeatLost) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, "noperm", a.Status().LastReason)
	for range 100 {
		take(t, l)
	}
	require.Equal(t, "closed", a.client.Status().Breaker)
	require.Equal(t, int64(3), a.Instances(1), "what was assumed stays")
}

// TestHeartbeatStopsInTime ends while Redis is silent.
func TestHeartbeatStopsInTime(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr)
	a := join(t, "redis://"+proxy.Addr(), 1)
	awaitAll(t, "it is there", 1, a)
	proxy.Set(t, servertest.Fault{Silent: true})
	began := time.Now()
	a.stop()
	t.Logf("the stop took %v", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), 10*time.Second)
}

// TestHeartbeatRights has a user with the rights that the docs list and no other.
func TestHeartbeatRights(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	rights := strings.Fields("acl setuser gateway on >password resetkeys ~rl:* resetchannels -@all +hello +ping +eval +evalsha +time " +
		"+hmget +hset +del +pttl +pexpire +zadd +zcard +zcount +zrem +zrangebyscore +zrevrange +zrevrangebyscore +zremrangebyrank +zrangebylex +zlexcount")
	args := make([]any, len(rights))
	for i, word := range rights {
		args[i] = word
	}
	require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
	a := join(t, strings.Replace(server.URL(), "redis://", "redis://gateway:password@", 1), 1)
	awaitAll(t, "it is there", 1, a)
	// Also where keys must be mended.
	require.NoError(t, server.Client(t).Set(t.Context(), seenKey, "x", redis.KeepTTL).Err())
	at := time.Now()
	require.Eventually(t, func() bool { return a.Status().Answered.After(at) && a.Status().LastReason == "" }, 20*time.Second, 5*time.Millisecond)
}

// TestHeartbeatFromManySides starts and stops from many goroutines.
func TestHeartbeatFromManySides(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	a := newFellow(t, server.URL())
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			for range 5 {
				stop := a.start(int64(i))
				_ = a.Status()
				_ = a.Instances(1)
				stop()
			}
		})
	}
	wait.Wait()
	require.Zero(t, server.Client(t).Exists(t.Context(), seenKey).Val(), "all have left")
	require.NoError(t, a.Destruct())
}
