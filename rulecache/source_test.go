package rulecache

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// nowhere is an address that refuses connections.
const nowhere = "postgres://u@127.0.0.1:1/db"

func TestDownAtStartAndComingBack(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Stop(t)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Minute})
	within(t, 10*time.Second, "failures", func() bool { return rules.Status().Failures > 1 })
	require.Nil(t, rules.Snapshot())
	require.Equal(t, 1, rules.count(EventFailed))
	require.Equal(t, 1, rules.count(EventListenLost))
	server.Restart(t)
	within(t, 50*time.Second, "the rules", func() bool { return rules.capacity("a") == 2 })
	rules.listening(t)
	require.Equal(t, 1, rules.count(EventRecovered))
	server.Exec(t, updateRule, 3)
	within(t, 10*time.Second, "a notification", func() bool { return rules.capacity("a") == 3 })

	server.Kill(t)
	within(t, 10*time.Second, "the loss is seen", func() bool { return !rules.Status().Listening })
	server.Restart(t)
	rules.listening(t)
	require.EqualValues(t, 3, rules.capacity("a"))
}

// TestF9StartInAnOutage starts and stops against servers that never answer.
func TestF9StartInAnOutage(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	proxy.Set(t, servertest.Fault{Swallow: true})
	for name, dsn := range map[string]string{
		"refused":     nowhere,
		"black hole":  servertest.PostgresURL(servertest.BlackHole(t), ""),
		"never talks": servertest.PostgresURL(proxy.Addr(), ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			rules := begin(t, dsn, Settings{})
			require.Less(t, time.Since(start), time.Second)
			require.Nil(t, rules.Await(context.Background(), time.Second))
			require.Less(t, time.Since(start), 10*time.Second)
			start = time.Now()
			rules.stop()
			require.Less(t, time.Since(start), 4*time.Second)
		})
	}
}

func TestStoredSnapshotUsed(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	store := new(memoryStore)
	first := begin(t, server.URL(""), Settings{Store: store}).loaded(t)
	first.stop()
	_, saves := store.stats()
	require.Equal(t, 1, saves)
	hash := first.Snapshot().Hash()

	server.Stop(t)
	again := begin(t, server.URL(""), Settings{Store: store})
	within(t, 10*time.Second, "the stored rules", func() bool { return again.Snapshot() != nil })
	require.EqualValues(t, 2, again.capacity("a"))
	require.Equal(t, hash, again.Snapshot().Hash())
	require.Positive(t, again.Status().Age)
	require.True(t, again.Status().LastSuccess.IsZero())
	within(t, 10*time.Second, "the event", func() bool { return again.count(EventStoredUsed) == 1 })

	server.Restart(t)
	again.loaded(t)
	again.stop()
	loads, saves := store.stats()
	require.Equal(t, 3, loads, "at each start, and before it was written")
	require.Equal(t, 1, saves, "what is stored already is not written again")
}

func TestStoreIsWrittenSeldom(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	store := new(memoryStore)
	rules := begin(t, server.URL(""), Settings{Store: store}).listening(t)
	for i := range int64(3) {
		server.Exec(t, updateRule, 10+i)
		within(t, 10*time.Second, "the change", func() bool { return rules.capacity("a") == 10+i })
	}
	within(t, 10*time.Second, "the first write", func() bool { _, saves := store.stats(); return saves == 1 })
	rules.Keep(t.Context())
	_, saves := store.stats()
	require.Equal(t, 2, saves, "one at the first load, and one that is asked for")
	server.Exec(t, updateRule, 13)
	within(t, 10*time.Second, "the change", func() bool { return rules.capacity("a") == 13 })
	rules.stop()
	rules.Keep(t.Context())
	_, saves = store.stats()
	require.Equal(t, 3, saves, "and one at the end")
	stored, err := decode(store.text, 10)
	require.NoError(t, err)
	require.Equal(t, rules.Snapshot().Hash(), stored.Hash())
}

func TestKeeper(t *testing.T) {
	t.Parallel()
	store, now := new(memoryStore), time.Unix(1_785_000_000, 0)
	k := keeper{every: time.Minute}
	one, two := snapshot(t, entry("t1", "a", 1)), snapshot(t, entry("t1", "a", 2))
	_, pending := k.due()
	require.False(t, pending)

	k.changed(one, now, 0)
	due, pending := k.due()
	require.True(t, pending)
	require.False(t, due.After(now), "the first at once")
	k.write(store, one, now)
	k.changed(two, now, 0)
	_, pending = k.due()
	require.False(t, pending, "one at a time")
	k.ended(<-k.writing, two)
	due, pending = k.due()
	require.True(t, pending)
	require.Equal(t, now.Add(time.Minute), due)
	k.changed(one, now, 0)
	_, pending = k.due()
	require.False(t, pending, "what is stored is in force again")
}

func TestBrokenStore(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	for name, store := range map[string]*memoryStore{
		"empty":   {text: []byte{}},
		"no JSON": {text: []byte("{")},
		"error":   {err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := begin(t, server.URL(""), Settings{Store: store}).loaded(t)
			require.EqualValues(t, 2, rules.capacity("a"))
			within(t, 10*time.Second, "the event", func() bool { return rules.count(EventStoredUnusable) > 0 })
			if store.err == nil {
				rules.stop()
				require.Zero(t, rules.count(EventStoreFailed), "it was read, not written")
				stored, err := decode(store.text, 10)
				require.NoError(t, err, "it is written anew")
				require.Equal(t, rules.Snapshot().Hash(), stored.Hash())
			}
		})
	}
}

// TestHungStore has a store that never answers: rules change all the same.
func TestHungStore(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	store := &memoryStore{block: make(chan struct{})}
	rules := begin(t, server.URL(""), Settings{Store: store}).listening(t)
	server.Exec(t, updateRule, 3)
	within(t, 10*time.Second, "the change", func() bool { return rules.capacity("a") == 3 })
	start := time.Now()
	rules.stop()
	require.Less(t, time.Since(start), background.StopTimeout+time.Second)
	close(store.block)
}

func TestStackOfSettings(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	source, err := NewSource(Options{DSN: servertest.PostgresURL(proxy.Addr(), "")})
	require.NoError(t, err)
	one, two, three := new(recorder), new(recorder), new(recorder)
	stopOne := source.Start(Settings{Refresh: time.Hour, Observe: one.observe})
	f := (&fixture{Source: source, recorder: one}).listening(t)
	connections := proxy.Accepted()

	// A reload pushes the new settings, then pops the old ones: the connection stays.
	stopTwo := source.Start(Settings{Refresh: time.Minute, Observe: two.observe})
	stopOne()
	stopOne()
	require.Equal(t, time.Minute, source.settings().Refresh)
	// A failed reload pushes and pops its own.
	stopThree := source.Start(Settings{Refresh: time.Second, Observe: three.observe})
	require.Equal(t, time.Second, source.settings().Refresh)
	stopThree()
	require.Equal(t, time.Minute, source.settings().Refresh)

	server.Exec(t, updateRule, 5)
	within(t, 10*time.Second, "the change", func() bool { return f.capacity("a") == 5 })
	within(t, 10*time.Second, "the event", func() bool { return two.count(EventLoaded) > 0 })
	require.Equal(t, 1, one.count(EventListening))
	require.Zero(t, two.count(EventListening)+three.count(EventListening))
	within(t, 10*time.Second, "one session", func() bool { return server.QueryInt(t, sessions) == 1 })
	require.Less(t, proxy.Accepted()-connections, 10)

	// Another channel, and none, take effect while the source runs.
	server.Exec(t, `CREATE TRIGGER rate_limit_notify_other AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON rate_limit_rule
		FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_rule_notify('other')`)
	stopFour := source.Start(Settings{Channel: "other"})
	within(t, 10*time.Second, "the other channel", func() bool {
		return server.QueryInt(t, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%convert_to(''other''%' AND pid <> pg_backend_pid()`) == 1
	})
	f.listening(t)
	stopFive := source.Start(Settings{ListenOff: true})
	within(t, 10*time.Second, "no listener", func() bool { return !source.Status().Listening })
	stopFive()
	f.listening(t)
	stopFour()

	stopTwo()
	require.False(t, source.Status().Running)
	require.False(t, source.Status().Listening)
	within(t, 10*time.Second, "no sessions", func() bool {
		return server.QueryInt(t, sessions) == 0
	})
	require.EqualValues(t, 5, f.capacity("a"), "the rules stay known")

	// A source that has stopped can be started again.
	server.Exec(t, updateRule, 6)
	stopSix := source.Start(Settings{})
	within(t, 10*time.Second, "the change", func() bool { return f.capacity("a") == 6 })
	stopSix()
}

func TestManyReloads(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	source, err := NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	stop := source.Start(Settings{})
	(&fixture{Source: source}).listening(t)
	var users sync.WaitGroup
	for range 50 {
		next := source.Start(Settings{})
		users.Go(stop)
		stop = next
	}
	users.Wait()
	require.True(t, source.Status().Listening)
	listens := 0
	for _, statement := range server.Statements(t) {
		if strings.HasPrefix(statement.Text, "LISTEN") {
			listens++
		}
	}
	require.Equal(t, 1, listens)
	stop()
}

func TestAwait(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	proxy.Set(t, servertest.Fault{Silent: true})
	source, err := NewSource(Options{DSN: servertest.PostgresURL(proxy.Addr(), "")})
	require.NoError(t, err)
	ctx := context.Background()
	quick := func(await func() *Snapshot) *Snapshot {
		t.Helper()
		start := time.Now()
		s := await()
		require.Less(t, time.Since(start), 10*time.Second)
		return s
	}
	const hour = time.Hour

	require.Nil(t, quick(func() *Snapshot { return source.Await(ctx, 10*time.Millisecond) }), "not started")
	var waiting sync.WaitGroup
	waiting.Go(func() { require.Equal(t, 1, source.Await(ctx, hour).Len(), "it came before the start") })
	stop := source.Start(Settings{})
	require.True(t, source.Trying())
	require.Nil(t, quick(func() *Snapshot { return source.Await(ctx, 10*time.Millisecond) }), "at most")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.Nil(t, quick(func() *Snapshot { return source.Await(gone, hour) }), "the request has gone")
	waiting.Go(func() { require.Equal(t, 1, source.Await(ctx, hour).Len()) })
	proxy.Set(t, servertest.Fault{})
	waiting.Wait()
	require.False(t, source.Trying())

	server.Stop(t)
	require.Equal(t, 1, quick(func() *Snapshot { return source.Await(ctx, hour) }).Len(), "never again")
	stop()
	require.Equal(t, 1, quick(func() *Snapshot { return source.Await(ctx, hour) }).Len(), "stopped")

	// The first attempt ends too where it fails, and where the source is stopped.
	down, err := NewSource(Options{DSN: nowhere})
	require.NoError(t, err)
	stop = down.Start(Settings{})
	require.Nil(t, quick(func() *Snapshot { return down.Await(ctx, hour) }))
	stop()
	require.Nil(t, quick(func() *Snapshot { return down.Await(ctx, hour) }), "stopped")
	rejected, err := NewSource(Options{DSN: nowhere})
	require.NoError(t, err)
	waiting.Go(func() { require.Nil(t, rejected.Await(ctx, hour)) })
	require.NoError(t, rejected.Destruct())
	waiting.Wait()
	proxy.Set(t, servertest.Fault{Silent: true})
	silent, err := NewSource(Options{DSN: servertest.PostgresURL(proxy.Addr(), "")})
	require.NoError(t, err)
	stop = silent.Start(Settings{})
	waiting.Go(func() { require.Nil(t, silent.Await(ctx, hour)) })
	stop()
	waiting.Wait()
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, plainTable)
	server.Exec(t, insertRule, "a", 2)
	source, err := NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	ctx := context.Background()
	require.ErrorIs(t, source.Refresh(ctx), ErrNotRunning)
	stop := source.Start(Settings{Refresh: time.Hour})
	f := (&fixture{Source: source}).loaded(t)
	for i := range int64(5) {
		server.Exec(t, updateRule, 10+i)
		require.NoError(t, source.Refresh(ctx))
		require.Equal(t, 10+i, f.capacity("a"))
	}
	server.Stop(t)
	require.ErrorContains(t, source.Refresh(ctx), "loading rules: connection")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, source.Refresh(gone), context.Canceled)
	stop()
	require.ErrorIs(t, source.Refresh(ctx), ErrNotRunning)
}

func TestDestruct(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	source, err := NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	require.NoError(t, source.Destruct(), "never started")
	source, err = NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	stop := source.Start(Settings{})
	f := (&fixture{Source: source}).listening(t)
	require.NoError(t, source.Destruct())
	require.NoError(t, source.Destruct())
	require.False(t, source.Status().Running)
	require.EqualValues(t, 2, f.capacity("a"))
	stop()
	source.Start(Settings{})()
	require.ErrorIs(t, source.Refresh(context.Background()), ErrNotRunning)
	require.Equal(t, 1, source.Await(context.Background(), time.Hour).Len())
}
