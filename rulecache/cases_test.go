package rulecache

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// killSessions ends every session of the rules.
const killSessions = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'`

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

// TestR1GapAtStart changes the table when the listener has begun to listen, and
// the load waits for a lock.
func TestR1GapAtStart(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	for i := range int64(10) {
		rules := begin(t, server.URL(""), Settings{Refresh: 10 * time.Minute})
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // somewhere on the way of the first load
		server.Exec(t, updateRule, 100+i)
		within(t, 30*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 100+i })
		rules.stop()
	}
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
	}

	server.Exec(t, `REVOKE SELECT ON rate_limit_rule FROM gateway`)
	failing("permission denied (SQLSTATE 42501)")
	server.Exec(t, `GRANT SELECT ON rate_limit_rule TO gateway`)
	working()

	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME TO elsewhere`)
	failing("the table does not exist (SQLSTATE 42P01)")
	server.Exec(t, `ALTER TABLE elsewhere RENAME TO rate_limit_rule`)
	working()

	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME capacity TO size`)
	failing("the table has no column capacity")
	server.Exec(t, `ALTER TABLE rate_limit_rule RENAME size TO capacity`)
	working()

	server.Stop(t)
	failing("connection lost")
	server.Restart(t)
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

func TestR4Storm(t *testing.T) {
	t.Parallel()
	const transactions, length = 10_000, 5 * time.Second
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: 10 * time.Minute}).listening(t)
	before := loads(server.Statements(t))

	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL("")+"&application_name=test")
	require.NoError(t, err)
	defer conn.Close(ctx)
	start := time.Now()
	for i := range transactions {
		_, err := conn.Exec(ctx, updateRule, i+1)
		require.NoError(t, err)
		// The storm is paced, and lasts longer where the machine is slow.
		time.Sleep(time.Until(start.Add(length * time.Duration(i) / transactions)))
	}
	took := time.Since(start)
	within(t, 10*time.Second, "the last value", func() bool { return rules.capacity("a") == transactions })
	latency := time.Since(start) - took
	time.Sleep(time.Second) // a superfluous load would come now
	count := loads(server.Statements(t)) - before
	t.Logf("%d transactions in %s: %d loads, the last value after %s", transactions, took, count, latency)
	require.LessOrEqual(t, count, 15+int(2*max(0, took-length)/time.Second))
}

// loads counts the loads of the table among statements: each asks for a digest.
func loads(statements []servertest.Statement) int {
	count := 0
	for _, statement := range statements {
		if strings.Contains(statement.Text, "hashtextextended") {
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
	time.Sleep(50 * time.Millisecond)
	proxy.Set(t, servertest.Fault{})
	within(t, 50*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7 })
	t.Logf("in force after %s", time.Since(start))
	within(t, 50*time.Second, "the loss is seen", func() bool { return rules.count(EventListening) == 2 })
	t.Logf("listening after %s", time.Since(start))
	server.Exec(t, updateRule, 8)
	within(t, 4*time.Second, "a notification arrives", func() bool { return rules.capacity("a") == 8 })
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

func TestR6ChannelNames(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	for i, channel := range []string{
		"RateLimitRules", "rate-limit rules", `a"b`, `it's`, `back\slash`, "$$", ":x :'x'", "ключ", strings.Repeat("x", 63),
	} {
		table := fmt.Sprintf("Rules %d", i)
		server.Exec(t, Schema(table, channel))
		source, err := NewSource(Options{DSN: server.URL(""), Table: table})
		require.NoError(t, err)
		settings := Settings{Refresh: 10 * time.Minute, Channel: channel}
		require.NoError(t, settings.Validate())
		stop := source.Start(settings)
		f := (&fixture{Source: source}).listening(t)
		server.Exec(t, `INSERT INTO `+pgx.Identifier{table}.Sanitize()+
			` (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', 5, 0.5)`)
		within(t, 10*time.Second, channel, func() bool { return f.capacity("a") == 5 })
		stop()
	}
	for _, channel := range []string{strings.Repeat("x", 64), strings.Repeat("ж", 32), "a\x00b", "a\nb", "a\xffb"} {
		require.Error(t, Settings{Channel: channel}.Validate(), channel)
	}
}

// badRows are what a row must not hold, by what is wrong with it.
func badRows() map[string]string {
	return map[string]string{
		"NULL tenant":        `NULL, 'bad', 5, 5, NULL, NULL, NULL, NULL`,
		"NULL route":         `'t1', NULL, 5, 5, NULL, NULL, NULL, NULL`,
		"NULL capacity":      `'t1', 'bad', NULL, 5, NULL, NULL, NULL, NULL`,
		"NULL refill":        `'t1', 'bad', 5, NULL, NULL, NULL, NULL, NULL`,
		"empty tenant":       `'', 'bad', 5, 5, NULL, NULL, NULL, NULL`,
		"empty route":        `'t1', '', 5, 5, NULL, NULL, NULL, NULL`,
		"path as route":      `'t1', '/orders', 5, 5, NULL, NULL, NULL, NULL`,
		"NaN capacity":       `'t1', 'bad', 'NaN', 5, NULL, NULL, NULL, NULL`,
		"NaN refill":         `'t1', 'bad', 5, 'NaN', NULL, NULL, NULL, NULL`,
		"infinite refill":    `'t1', 'bad', 5, 'Infinity', NULL, NULL, NULL, NULL`,
		"infinite capacity":  `'t1', 'bad', 'Infinity', 5, NULL, NULL, NULL, NULL`,
		"negative capacity":  `'t1', 'bad', -1, 5, NULL, NULL, NULL, NULL`,
		"negative refill":    `'t1', 'bad', 5, -1, NULL, NULL, NULL, NULL`,
		"zero refill":        `'t1', 'bad', 5, 0, NULL, NULL, NULL, NULL`,
		"broken capacity":    `'t1', 'bad', 5.5, 5, NULL, NULL, NULL, NULL`,
		"huge capacity":      `'t1', 'bad', 1e30, 5, NULL, NULL, NULL, NULL`,
		"capacity over int":  `'t1', 'bad', 2147483648, 5, NULL, NULL, NULL, NULL`,
		"window over bounds": `'t1', 'bad', 5, 1e-9, NULL, NULL, NULL, NULL`,
		"unknown algorithm":  `'t1', 'bad', 5, 5, 'leaky_bucket', NULL, NULL, NULL`,
		"empty algorithm":    `'t1', 'bad', 5, 5, '', NULL, NULL, NULL`,
		"unknown mode":       `'t1', 'bad', 5, 5, NULL, 'maybe', NULL, NULL`,
		"unknown prefetch":   `'t1', 'bad', 5, 5, NULL, NULL, 'much', NULL`,
		"prefetch too high":  `'t1', 'bad', 5, 5, NULL, NULL, '100001', NULL`,
		"shards too high":    `'t1', 'bad', 5, 5, NULL, NULL, NULL, 257`,
		"shards zero":        `'t1', 'bad', 5, 5, NULL, NULL, NULL, 0`,
		"not yet: algorithm": `'t1', 'bad', 5, 5, 'sliding_window_log', NULL, NULL, NULL`,
		"not yet: mode":      `'t1', 'bad', 5, 5, NULL, 'shadow', NULL, NULL`,
		"not yet: prefetch":  `'t1', 'bad', 5, 5, NULL, NULL, '10', NULL`,
		"not yet: auto":      `'t1', 'bad', 5, 5, NULL, NULL, 'auto', NULL`,
		"not yet: shards":    `'t1', 'bad', 5, 5, NULL, NULL, NULL, 4`,
		"1 MB tenant":        `repeat('x', 1048576), 'bad', 5, 5, NULL, NULL, NULL, NULL`,
		"1 MB route":         `'t1', repeat('x', 1048576), 5, 5, NULL, NULL, NULL, NULL`,
		"over-long tenant":   `repeat('ж', 65), 'bad', 5, 5, NULL, NULL, NULL, NULL`,
	}
}

const insertLoose = `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, algorithm, mode, prefetch, shards) VALUES `

func TestR7BadRows(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, looseTable)
	server.Exec(t, insertLoose+`('t1', 'a', 2.00, 0.5, 'token_bucket', 'enforce', '0', 1), ('t1', 'bad', 3, 1e0, NULL, NULL, NULL, NULL), (repeat('ж', 64), '*', 4, 1, NULL, NULL, NULL, NULL)`)
	store := new(memoryStore)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Minute, ListenOff: true, Store: store}).loaded(t)
	require.Equal(t, 3, rules.Snapshot().Len())
	require.Zero(t, rules.Status().Rejected)

	for name, row := range badRows() {
		server.Exec(t, `BEGIN; DELETE FROM rate_limit_rule WHERE route_id IS DISTINCT FROM 'a' AND route_id IS DISTINCT FROM '*';`+insertLoose+`(`+row+`), ('t1', 'good', 9, 9, NULL, NULL, NULL, NULL); COMMIT`)
		require.NoError(t, rules.Refresh(context.Background()), name)
		count, reasons := rules.Snapshot().Rejected()
		require.Equal(t, 1, count, name)
		require.Len(t, reasons, 1, name)
		require.NotEmpty(t, reasons[0].ID, name)
		require.NotEmpty(t, reasons[0].Reason, name)
		require.Less(t, len(reasons[0].Reason), 250, name)
		require.EqualValues(t, 9, rules.capacity("good"), name)
		kept := int64(0)
		if strings.HasPrefix(row, "'t1', 'bad'") {
			kept = 3
		}
		require.Equal(t, kept, rules.capacity("bad"), name)
		// The good version comes back for the next one.
		server.Exec(t, `BEGIN; DELETE FROM rate_limit_rule WHERE route_id IS DISTINCT FROM 'a' AND route_id IS DISTINCT FROM '*';`+insertLoose+`('t1', 'bad', 3, 1, NULL, NULL, NULL, NULL); COMMIT`)
		require.NoError(t, rules.Refresh(context.Background()), name)
		require.EqualValues(t, 3, rules.capacity("bad"), name)
	}
	rules.stop()

	t.Run("at start", func(t *testing.T) {
		server.Exec(t, `UPDATE rate_limit_rule SET capacity = -1 WHERE route_id = 'bad'; DELETE FROM rate_limit_rule WHERE route_id = '*'`)
		again := begin(t, server.URL(""), Settings{Refresh: time.Minute, Store: store}).loaded(t)
		require.EqualValues(t, 3, again.capacity("bad"), "the last good one is that of the stored snapshot")
		require.Equal(t, 2, again.Snapshot().Len(), "what was deleted meanwhile is gone")
		require.Equal(t, 1, again.Status().Rejected)
	})
	t.Run("at start without a store", func(t *testing.T) {
		again := begin(t, server.URL(""), Settings{Refresh: time.Minute}).loaded(t)
		require.Zero(t, again.capacity("bad"))
		require.EqualValues(t, 2, again.capacity("a"))
	})
}

func TestR7Duplicates(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, looseTable)
	server.Exec(t, `INSERT INTO rate_limit_rule (id, tenant_id, route_id, capacity, refill_per_second) VALUES
		(10, 't1', 'a', 10, 1), (9, 't1', 'a', 9, 1), (100, 't1', 'b', 100, 1), (101, 't1', 'b', -1, 1)`)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Minute, ListenOff: true}).loaded(t)
	require.EqualValues(t, 10, rules.capacity("a"), "the highest id wins")
	require.EqualValues(t, 100, rules.capacity("b"), "of those that are good")
	require.Equal(t, 2, rules.Status().Rejected)
}

func TestR8TooMany(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second, MaxRules: 100_000}).listening(t)
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		SELECT 'tenant-' || i, 'r', 5, 5 FROM generate_series(1, 200000) i`)
	within(t, 30*time.Second, "refused", func() bool {
		return rules.Status().LastError == "the table has more than max_rules (100000) rows"
	})
	require.Equal(t, 1, rules.Snapshot().Len())
	require.EqualValues(t, 2, rules.capacity("a"))

	// The bound is of the configuration in force.
	stop := rules.Start(Settings{Refresh: time.Second})
	within(t, 60*time.Second, "allowed", func() bool { return rules.Snapshot().Len() == 200_001 })
	stop()
}

// TestBoundedRead reads a table that has grown since it was counted.
func TestBoundedRead(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, insertRule, "b", 3)
	source, err := NewSource(Options{DSN: server.URL("")})
	require.NoError(t, err)
	s, err := connect(context.Background(), source.config, nil)
	require.NoError(t, err)
	defer s.close()
	_, err = reading{table: "rate_limit_rule", maxRules: 1}.rows(context.Background(), s, []string{"id", "tenant_id", "route_id", "capacity", "refill_per_second"}, 1)
	require.ErrorContains(t, err, "more than max_rules")
}

func TestPoolerIsPolledOnly(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	pooler := newWireProxy(t, server.Addr)
	pooler.fakePID.Store(true)
	rules := begin(t, servertest.PostgresURL(pooler.addr, ""), Settings{Refresh: time.Second}).loaded(t)
	for capacity := range int64(3) {
		server.Exec(t, updateRule, 7+capacity)
		within(t, 10*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7+capacity })
	}
	require.Equal(t, 1, rules.count(EventPollOnly))
	require.Equal(t, string(errPooler), rules.Status().PollOnly)
	require.False(t, rules.Status().Listening)

	pooler.fakePID.Store(false)
	rules.listening(t)
}

// TestOnlyPollsReachPostgres keeps readers busy while few statements are run.
func TestOnlyPollsReachPostgres(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second}).listening(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				Find("t1", "a", rules.Snapshot())
				rules.Await(ctx, time.Second)
				time.Sleep(time.Millisecond)
			}
		})
	}
	readers.Wait()
	statements := server.Statements(t)
	for _, statement := range statements {
		known := false
		for _, prefix := range []string{
			"SELECT pg_backend_pid()", `LISTEN "rate_limit_rule"`, "SELECT count(*)", "SELECT left(id::text", "-- ping",
		} {
			known = known || strings.HasPrefix(statement.Text, prefix)
		}
		require.True(t, known, statement.Text)
	}
	require.Less(t, len(statements), 40)
	require.LessOrEqual(t, server.QueryInt(t, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'`), 2)
}

func TestUnixSocketAndSearchPath(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, `CREATE SCHEMA "Gate"; SET search_path = "Gate";`+Schema("", ""))
	_, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	server.Exec(t, `INSERT INTO "Gate".rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', 2, 1)`)
	for _, o := range []Options{
		{DSN: "postgres://postgres@/postgres?search_path=%22Gate%22&host=" + server.SocketDir() + "&port=" + port},
		{DSN: server.URL(""), Table: "Gate.rate_limit_rule"},
	} {
		source, err := NewSource(o)
		require.NoError(t, err)
		stop := source.Start(Settings{})
		f := (&fixture{Source: source}).listening(t)
		require.EqualValues(t, 2, f.capacity("a"))
		stop()
	}
}
