package regions

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// recorder keeps events, and is a store of a few bytes.
type recorder struct {
	mu     sync.Mutex
	events []Event
	value  []byte
}

func (r *recorder) observe(event Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) count(kind EventKind) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

func (r *recorder) Load(context.Context) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value == nil {
		return nil, fs.ErrNotExist
	}
	return r.value, nil
}

func (r *recorder) Save(_ context.Context, value []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = value
	return nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func begin(t testing.TB, dsn, region string, r *recorder) (*Source, func()) {
	t.Helper()
	source, err := NewSource(Options{DSN: dsn, Region: region})
	require.NoError(t, err)
	stop := source.Start(Settings{Refresh: 50 * time.Millisecond, Drain: time.Millisecond, Rebalance: time.Second, Store: r, Observe: r.observe})
	t.Cleanup(func() {
		stop()
		require.NoError(t, source.Destruct())
	})
	return source, stop
}

// TestSources has three regions, of which one comes later, one is cut off, and one
// leaves, with a real PostgreSQL.
func TestSources(t *testing.T) {
	t.Parallel()
	server, _ := withTables(t)
	proxy := servertest.NewProxy(t, server.Addr)
	var eu, us recorder
	first, _ := begin(t, server.URL(""), "eu", &eu)
	require.InDelta(t, Budget.Fraction(), first.Await(t.Context(), 20*time.Second).All(), 1e-9, "the first region has all from the first request on")
	second, stop := begin(t, servertest.PostgresURL(proxy.Addr(), ""), "us", &us)
	eventually(t, "the second joins", func() bool { return second.Shares().All() >= DefaultSafe.Fraction() })
	eventually(t, "the safe share is kept", func() bool {
		value, _ := us.Load(t.Context())
		return string(value) == `{"region":"us","safe":50000}`
	})

	asking := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-asking:
				return
			case <-time.After(time.Millisecond):
				first.Count(limit.Key{Tenant: "t", Route: "r", Shard: 3}, 3)
				second.Count(limit.Key{Tenant: "t", Route: "r"}, 7)
			}
		}
	})
	eventually(t, "shares follow the demand", func() bool {
		return first.Shares().All() < 0.4 && second.Shares().All() > 0.6
	})
	close(asking)
	wait.Wait()

	status := second.Status()
	require.True(t, status.Running)
	require.False(t, status.Lapsed)
	require.Less(t, status.Age, 10*time.Second)
	proxy.Set(t, servertest.Fault{Refuse: true})
	eventually(t, "the loss is told", func() bool { return us.count(EventFailed) > 0 && second.Status().LastError != "" })
	require.Greater(t, second.Shares().All(), 0.3, "the last good shares stay while they are valid")
	proxy.Set(t, servertest.Fault{})
	eventually(t, "it is back", func() bool { return us.count(EventRecovered) >= 1 })
	require.Zero(t, us.count(EventLapsed))
	stop()
	require.InDelta(t, DefaultSafe.Fraction(), second.Shares().All(), 1e-9, "who has left gives the safe share")
	require.Equal(t, 1, server.QueryInt(t, `SELECT count(*) FROM rate_limit_region_gateway`))
}

// TestSourceWithoutDatabase starts on what an earlier run has kept.
func TestSourceWithoutDatabase(t *testing.T) {
	t.Parallel()
	dsn := servertest.PostgresURL(servertest.FreeAddr(t), "")
	for name, test := range map[string]struct {
		kept  string
		share Share
		kind  EventKind
	}{
		"nothing kept":   {"", Unknown, EventUnknown},
		"kept":           {`{"region":"eu","safe":70000}`, 70_000, EventStored},
		"another's":      {`{"region":"us","safe":70000}`, Unknown, EventUnknown},
		"no such share":  {`{"region":"eu","safe":1000001}`, Unknown, EventUnknown},
		"a share of 0":   {`{"region":"eu","safe":0}`, Unknown, EventUnknown},
		"broken":         {`{"region":`, Unknown, EventStoreFailed},
		"another's kind": {`[]`, Unknown, EventStoreFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{value: []byte(test.kept)}
			source, _ := begin(t, dsn, "eu", r)
			eventually(t, "it is told", func() bool { return r.count(EventFailed) > 0 && r.count(test.kind) > 0 })
			require.InDelta(t, test.share.Fraction(), source.Await(t.Context(), time.Second).All(), 1e-9)
			require.Equal(t, 1, r.count(EventFailed), "once")
		})
	}
}

// TestLapse falls back when the shares are too old, by whichever clock says so.
func TestLapse(t *testing.T) {
	t.Parallel()
	store := newMemory(time.Now)
	now := time.Now()
	m := &member{reader: store, id: "a", region: "eu", valid: time.Minute, drain: time.Second, now: func() time.Time { return now }}
	m.start(Unknown)
	_, err := m.poll(t.Context())
	require.NoError(t, err)
	_, err = Job{Books: store}.Run(t.Context())
	require.NoError(t, err)
	changed, err := m.poll(t.Context())
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, Budget, m.shares().all)

	now = now.Add(59 * time.Second)
	require.Equal(t, Budget, m.shares().all)
	now = now.Add(time.Second)
	require.Equal(t, DefaultSafe, m.shares().all)
	lapsed, news := m.lapse()
	require.True(t, lapsed)
	require.True(t, news)
	_, news = m.lapse()
	require.False(t, news)

	// The machine slept: its monotonic clock stood still, the other went on.
	force := *m.force.Load()
	force.began = time.Now().Round(0).Add(-2 * time.Minute)
	require.Equal(t, force.fallen, force.at(time.Now().Round(0)))
	store.fail = func(string) error { return errors.New("away") }
	_, err = m.poll(t.Context())
	require.Error(t, err)
	require.Equal(t, DefaultSafe, m.shares().all)
	store.fail = func(string) error { return nil }
	changed, err = m.poll(t.Context())
	require.NoError(t, err)
	require.False(t, changed)
	require.Equal(t, Budget, m.shares().all, "they are known to hold again")
}

// TestAckWaitsForDecisionsUnderWay tells of a version only when nothing older is
// in use any more.
func TestAckWaitsForDecisionsUnderWay(t *testing.T) {
	t.Parallel()
	store := newMemory(time.Now)
	now := time.Unix(1_800_000_000, 0)
	m := &member{reader: store, id: "a", region: "eu", valid: time.Minute, drain: 3 * time.Second, now: func() time.Time { return now }}
	m.start(Unknown)
	for _, test := range []struct {
		version, acked int64
		after          time.Duration
	}{{5, 0, 0}, {5, 0, 2 * time.Second}, {5, 5, time.Second}, {6, 5, time.Second}, {7, 5, 2 * time.Second}, {7, 5, time.Second}, {7, 7, 2 * time.Second}} {
		store.version = test.version
		now = now.Add(test.after)
		_, err := m.poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, test.acked, store.gateways["a"].Acked, "%+v", test)
	}
}

func TestFallenShares(t *testing.T) {
	t.Parallel()
	view := View{Version: 3, Safe: 50_000, Shares: map[limit.Key]Share{Everything(): 700_000, hot: 20_000, {Tenant: "b", Route: "r"}: 900_000, {Tenant: "c", Route: "r"}: 0}}
	shares := view.shares()
	require.InDelta(t, 0.7, shares.All(), 1e-9)
	require.Equal(t, Unknown, shares.of(limit.Key{Tenant: "c", Route: "r"}))
	fallen := shares.fallen()
	require.Equal(t, Share(50_000), fallen.all)
	require.Equal(t, Share(20_000), fallen.of(hot))
	require.Equal(t, Share(50_000), fallen.of(limit.Key{Tenant: "b", Route: "r"}))
	require.Equal(t, Unknown, shares.floor())
	require.True(t, shares.Known())
	require.False(t, fallen.Known(), "it is less than what was read")
	require.False(t, flat(Budget).Known(), "nothing was read")

	view.Shares = map[limit.Key]Share{Everything(): 20_000, hot: 700_000}
	shares = view.shares()
	fallen = shares.fallen()
	require.Equal(t, Share(20_000), fallen.all)
	require.Equal(t, Share(50_000), fallen.of(hot))
	require.Equal(t, Share(20_000), shares.floor())
	require.False(t, fallen.Known(), "of one limit it is less")

	view.Shares = map[limit.Key]Share{Everything(): 20_000, hot: 50_000}
	require.True(t, view.shares().fallen().Known(), "it is the same as what was read")
}

func TestOptionsBounds(t *testing.T) {
	t.Parallel()
	require.NoError(t, Options{Region: "eu"}.Validate())
	require.ErrorContains(t, Options{Region: "e u"}.Validate(), `the region's name "e u" is not allowed`)
	require.ErrorContains(t, Options{}.Validate(), "the region's name")
	require.ErrorContains(t, Options{Region: "eu", Valid: time.Second}.Validate(), "valid 1s is out of bounds: allowed are 10s to 24h")
	require.NoError(t, Settings{Rebalance: -1}.Validate())
	require.ErrorContains(t, Settings{Rebalance: time.Millisecond}.Validate(), "rebalance 1ms is out of bounds: allowed are 10s to 24h, and off")
	_, err := NewSource(Options{Region: "eu", DSN: "postgres://u:secret@h:x/"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	require.NotEqual(t, Options{Region: "eu", DSN: "a"}.PoolKey(), Options{Region: "us", DSN: "a"}.PoolKey())
	for kind := EventShares; kind <= EventStoreFailed; kind++ {
		require.NotEqual(t, "something happened", kind.String())
	}
	_, err = json.Marshal(kept{})
	require.NoError(t, err)
}

// TestStartAndStop ends what was begun, however often and in whichever order.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	store := newMemory(time.Now)
	store.fail = func(string) error { calls.Add(1); return errors.New("away") }
	source := newSource(Options{Region: "eu"}, store)
	early := make(chan struct{})
	go func() {
		defer close(early)
		source.Await(context.Background(), time.Hour) // a request that comes before the Start
	}()
	one := source.Start(Settings{Drain: time.Millisecond})
	two := source.Start(Settings{Drain: time.Millisecond})
	one()
	one()
	require.True(t, source.Status().Running)
	two()
	require.False(t, source.Status().Running)
	three := source.Start(Settings{Drain: time.Millisecond})
	require.NoError(t, source.Destruct())
	three()
	source.Start(Settings{})()
	<-early
	require.Positive(t, calls.Load())
	source.Count(limit.Key{Tenant: "t", Route: "r"}, 1)
	require.InDelta(t, Unknown.Fraction(), source.Await(t.Context(), time.Hour).All(), 1e-9)
}

// TestNothingOfAConfigurationStays holds that a Source, which outlives every
// configuration, keeps neither the store nor the observer of one that has gone.
func TestNothingOfAConfigurationStays(t *testing.T) {
	t.Parallel()
	source, err := NewSource(Options{DSN: "postgres://127.0.0.1:1/none", Region: "eu"})
	require.NoError(t, err)
	r := new(recorder)
	stop := source.Start(Settings{Store: r, Observe: r.observe})
	stop()
	told := r.count(EventFailed)
	source.settings().Observe(Event{Kind: EventFailed})
	require.Equal(t, told, r.count(EventFailed), "nobody observes any more")
	require.Nil(t, source.settings().Store)
	require.NoError(t, source.Destruct())
}
