package rulecache

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// killSessions ends every session of the rules.
const killSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'`

// sessions counts the sessions of the rules.
const sessions = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'`

func TestR1Gap(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	rules := begin(t, servertest.PostgresURL(proxy.Addr(), ""), Settings{Refresh: 10 * time.Minute}).listening(t)

	proxy.Set(t, servertest.Fault{Refuse: true})
	within(t, 10*time.Second, "the loss is seen", func() bool { return !rules.Status().Listening })
	server.Exec(t, updateRule, 7)
	proxy.Set(t, servertest.Fault{})
	within(t, 30*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7 })
	within(t, 10*time.Second, "listening", func() bool { return rules.Status().Listening })

	// The backend alone dies, and the change is in the same transaction.
	server.Exec(t, strings.Replace(updateRule, "$1", "9", 1)+";"+killSessions)
	within(t, 30*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 9 })
	require.Positive(t, rules.count(EventListenLost))
}

// TestR1GapAtStart changes the table after each of the statements at start.
func TestR1GapAtStart(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	for n := range 6 {
		before := len(server.Statements(t))
		rules := begin(t, server.URL(""), Settings{Refresh: 10 * time.Minute})
		within(t, 10*time.Second, "the statement", func() bool { return len(server.Statements(t)) >= before+n })
		server.Exec(t, updateRule, 100+n)
		within(t, 30*time.Second, "the change is in force", func() bool { return rules.capacity("a") == int64(100+n) })
		rules.stop()
	}
}

// TestR1GapInALoad changes the table between the digest and the read: the mark
// is that of before, so the next load reads again.
func TestR1GapInALoad(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	source, err := NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	ctx := context.Background()
	s, err := source.poller.dialing(nil).Connect(ctx)
	require.NoError(t, err)
	defer s.Close()

	r := source.poller.reading()
	found, err := r.read(ctx, s)
	require.NoError(t, err)
	require.NotNil(t, found.rules)
	r.known = found.mark
	found, err = r.read(ctx, s)
	require.NoError(t, err)
	require.Nil(t, found.rules, "nothing has changed")
	server.Exec(t, updateRule, 3)
	found, err = r.read(ctx, s)
	require.NoError(t, err)
	require.NotNil(t, found.rules)
	server.Exec(t, `ALTER TABLE rate_limit_rule DROP COLUMN shards`)
	r.known = found.mark
	found, err = r.read(ctx, s)
	require.NoError(t, err)
	require.NotNil(t, found.rules, "the columns have changed")
}

func TestR2ErrorsAreNotEmpty(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, `CREATE ROLE gateway LOGIN; GRANT SELECT ON rate_limit_rule TO gateway`)
	proxy := servertest.NewProxy(t, server.Addr)
	dsn := strings.Replace(servertest.PostgresURL(proxy.Addr(), ""), "postgres@", "gateway@", 1)
	rules := begin(t, dsn, Settings{Refresh: time.Second}).listening(t)

	failing := func(why string) {
		t.Helper()
		within(t, 20*time.Second, why, func() bool { return rules.Status().LastError == why && rules.Status().Failures > 1 })
		require.EqualValues(t, 2, rules.capacity("a"))
		require.ErrorContains(t, rules.Refresh(context.Background()), why)
	}
	working := func() {
		t.Helper()
		within(t, 20*time.Second, "it works again", func() bool { return rules.Status().Failures == 0 })
		require.EqualValues(t, 2, rules.capacity("a"))
		require.Equal(t, 1, rules.Status().Rules)
		require.NotZero(t, rules.Status().Loads)
	}

	server.Exec(t, `REVOKE SELECT ON rate_limit_rule FROM gateway`)
	failing("permission denied (SQLSTATE 42501)")
	require.Greater(t, rules.Status().FailedLoads, uint64(1))
	server.Exec(t, `GRANT SELECT ON rate_limit_rule TO gateway`)
	working()

	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME TO elsewhere`)
	failing("the table rate_limit_rule does not exist: `caddy rate-limit schema` prints the SQL that creates it (SQLSTATE 42P01)")
	server.Exec(t, `ALTER TABLE elsewhere RENAME TO rate_limit_rule`)
	working()

	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME capacity TO size`)
	failing("the table has no column capacity")
	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME size TO capacity`)
	working()

	ctx := context.Background()
	locker, err := pgx.Connect(ctx, server.URL("")+"&application_name=test")
	require.NoError(t, err)
	defer locker.Close(ctx)
	_, err = locker.Exec(ctx, `BEGIN; LOCK TABLE rate_limit_rule`)
	require.NoError(t, err)
	failing("timed out")
	within(t, 10*time.Second, "a query that was given up is canceled", func() bool { return server.QueryInt(t, sessions) <= 2 })
	_, err = locker.Exec(ctx, `COMMIT`)
	require.NoError(t, err)
	working()

	server.Stop(t)
	failing("connection lost")
	server.Restart(t)
	working()

	proxy.Set(t, servertest.Fault{Silent: true})
	failing("timed out")
	proxy.Set(t, servertest.Fault{})
	working()

	proxy.Set(t, servertest.Fault{Refuse: true})
	failing("connection refused")
	proxy.Set(t, servertest.Fault{})
	working()

	server.Exec(t, `DELETE FROM rate_limit_rule`)
	within(t, 10*time.Second, "really empty", func() bool { return rules.Snapshot().Len() == 0 })
	require.NotNil(t, rules.Snapshot())
	require.Zero(t, rules.Status().Failures)
}

// TestR2HalfRead cuts the connection when a part of the rows has arrived.
func TestR2HalfRead(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	cutter := newWireProxy(t, server.Addr)
	rules := begin(t, servertest.PostgresURL(cutter.addr, ""), Settings{Refresh: time.Second, ListenOff: true}).loaded(t)

	cutter.cutAfterRows.Store(500)
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		SELECT 'other' || i, 'a', 1, 1 FROM generate_series(1, 5000) i`)
	within(t, 10*time.Second, "cut half-way", func() bool { return rules.Status().Failures > 1 })
	require.Equal(t, 1, rules.Snapshot().Len())
	cutter.cutAfterRows.Store(0)
	within(t, 10*time.Second, "read whole", func() bool { return rules.Snapshot().Len() == 5001 })
}

func TestR3DeletesAndLateCommits(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, plainTable)
	server.Exec(t, insertRule, "a", 2)
	server.Exec(t, insertRule, "gone", 3)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second, ListenOff: true}).loaded(t)
	require.EqualValues(t, 3, rules.capacity("gone"))
	onePoll := 10 * time.Second

	server.Exec(t, `DELETE FROM rate_limit_rule WHERE route_id = 'gone'`)
	within(t, onePoll, "the DELETE", func() bool { return rules.capacity("gone") == 0 })

	ctx := context.Background()
	late, err := pgx.Connect(ctx, server.URL(""))
	require.NoError(t, err)
	defer late.Close(ctx)
	tx, err := late.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, insertRule, "early", 4)
	require.NoError(t, err)
	server.Exec(t, insertRule, "later", 5)
	within(t, onePoll, "the row with the higher id", func() bool { return rules.capacity("later") == 5 })
	require.Zero(t, rules.capacity("early"))
	require.NoError(t, tx.Commit(ctx))
	within(t, onePoll, "the row committed after it", func() bool { return rules.capacity("early") == 4 })

	server.Exec(t, `UPDATE rate_limit_rule SET capacity = 6, updated_at = now() - interval '1 day' WHERE route_id = 'a'`)
	within(t, onePoll, "yesterday's row", func() bool { return rules.capacity("a") == 6 })
	require.False(t, rules.Status().Listening)
	for _, statement := range server.Statements(t) {
		require.NotContains(t, statement.Text, "LISTEN")
	}
}

// TestR4Storm sees the last value soon after a storm: within a deadline that allows
// for a busy machine, and at best of two storms within one that a wait of a whole
// storm's length, or for the next poll, would break.
func TestR4Storm(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: 10 * time.Minute}).listening(t)
	latency := storm(t, server, rules, 1)
	if latency >= 2500*time.Millisecond {
		latency = min(latency, storm(t, server, rules, 2))
	}
	require.Less(t, latency, 2500*time.Millisecond)
}

// storm changes the rule in many transactions and returns how long after them the
// last value was in force.
func storm(t *testing.T, server *servertest.PostgresServer, rules *fixture, number int) time.Duration {
	t.Helper()
	const transactions, length = 10_000, 5 * time.Second
	before := loads(server.Statements(t))
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL("")+"&application_name=test")
	require.NoError(t, err)
	defer conn.Close(ctx)
	start := time.Now()
	for i := range transactions {
		_, err := conn.Exec(ctx, updateRule, number*transactions+i)
		require.NoError(t, err)
		// The storm is paced, and lasts longer where the machine is slow.
		time.Sleep(time.Until(start.Add(length * time.Duration(i) / transactions)))
	}
	took := time.Since(start)
	within(t, 10*time.Second, "the last value", func() bool { return rules.capacity("a") == int64(number+1)*transactions-1 })
	latency := time.Since(start) - took
	time.Sleep(time.Second) // a superfluous load would come now
	count := loads(server.Statements(t)) - before
	t.Logf("%d transactions in %s: %d loads, the last value after %s", transactions, took, count, latency)
	require.LessOrEqual(t, count, 15+int(2*max(0, took-length)/time.Second))
	return latency
}

// loads counts the loads of the table among statements: each is one message.
func loads(statements []servertest.Statement) int {
	count := 0
	for _, statement := range statements {
		if strings.HasPrefix(statement.Text, "BEGIN ISOLATION LEVEL REPEATABLE READ") {
			count++
		}
	}
	return count
}

func TestR5HalfOpen(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	rules := begin(t, servertest.PostgresURL(proxy.Addr(), ""), Settings{Refresh: 5 * time.Second}).listening(t)

	// What is lost while the proxy swallows leaves the LISTEN connection dead for
	// good, without a sign; the connections of polls are made anew.
	proxy.Set(t, servertest.Fault{Swallow: true})
	server.Exec(t, updateRule, 7)
	start := time.Now()
	time.Sleep(500 * time.Millisecond) // for the notification to be lost
	proxy.Set(t, servertest.Fault{})
	within(t, 50*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7 })
	t.Logf("in force after %s", time.Since(start))
	within(t, 50*time.Second, "the loss is seen", func() bool { return rules.count(EventListening) == 2 })
	t.Logf("listening after %s", time.Since(start))
	server.Exec(t, updateRule, 8)
	within(t, 40*time.Second, "the next change is in force", func() bool { return rules.capacity("a") == 8 })
}

func TestR5HotStandby(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	standby := server.Standby(t)
	rules := begin(t, standby.URL(""), Settings{Refresh: time.Second}).loaded(t)
	for capacity := range int64(3) {
		server.Exec(t, updateRule, 7+capacity)
		within(t, 20*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7+capacity })
	}
	require.Equal(t, 1, rules.count(EventPollOnly))
	require.Zero(t, rules.count(EventListenLost))
	require.Equal(t, string(errStandby), rules.Status().PollOnly)

	standby.Exec(t, `SELECT pg_promote()`)
	rules.listening(t)
	require.Empty(t, rules.Status().PollOnly)
}
