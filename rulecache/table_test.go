package rulecache

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

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

// badValues are SQL values that a row of tenant t1 and route bad must not have,
// by column.
func badValues() map[string][]string {
	return map[string][]string{
		"tenant_id":         {`NULL`, `''`, `repeat('x', 1048576)`, `repeat('ж', 65)`},
		"route_id":          {`NULL`, `''`, `'/orders'`, `'{x}'`, `repeat('x', 1048576)`, `repeat('x', 65)`},
		"capacity":          {`NULL`, `0`, `-1`, `5.5`, `2147483648`, `1e30`, `'NaN'`, `'Infinity'`},
		"refill_per_second": {`NULL`, `0`, `-1`, `1e-9`, `1e300`, `'NaN'`, `'Infinity'`, `'-Infinity'`},
		"algorithm":         {`''`, `'leaky_bucket'`, `repeat('x', 1048576)`},
		"mode":              {`''`, `'maybe'`},
		"prefetch":          {`''`, `'much'`, `'-1'`, `'100001'`},
		"shards":            {`0`, `-1`, `17`, `257`},
	}
}

func TestR7BadRows(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	const insert = `INSERT INTO rate_limit_rule (id, tenant_id, route_id, capacity, refill_per_second) VALUES `
	const heal = `DELETE FROM rate_limit_rule WHERE id = 3;` + insert + `(3, 't1', 'bad', 3, 1)`
	server.Exec(t, looseTable+`;`+heal+`;`+insert+`(1, 't1', 'good', 1.00, 1e0), (4, repeat('ж', 64), '*', 4, 0.5);
		INSERT INTO rate_limit_rule VALUES (2, 't1', 'a', 2, 0.5, 'token_bucket', 'enforce', '0', 1)`)
	store := new(memoryStore)
	ctx := context.Background()
	rules := begin(t, server.URL(""), Settings{Refresh: time.Minute, ListenOff: true, Store: store}).loaded(t)
	require.Equal(t, 4, rules.Snapshot().Len())
	require.Zero(t, rules.Status().Rejected)

	good := int64(1)
	for column, values := range badValues() {
		for _, value := range values {
			good++
			name := column + " = " + value
			server.Exec(t, fmt.Sprintf(`UPDATE rate_limit_rule SET %s WHERE id = 3; UPDATE rate_limit_rule SET capacity = %d WHERE id = 1`, name, good))
			require.NoError(t, rules.Refresh(ctx), name)
			count, reasons := rules.Snapshot().Rejected()
			require.Equal(t, 1, count, name)
			require.Len(t, reasons, 1, name)
			require.Equal(t, "3", reasons[0].ID, name)
			require.NotEmpty(t, reasons[0].Reason, name)
			require.Less(t, len(reasons[0].Reason), 250, name)
			require.Equal(t, good, rules.capacity("good"), name)
			if column == "tenant_id" || column == "route_id" {
				require.Zero(t, rules.capacity("bad"), name)
			} else {
				require.EqualValues(t, 3, rules.capacity("bad"), name)
			}
			server.Exec(t, heal)
			require.NoError(t, rules.Refresh(ctx), name)
			require.EqualValues(t, 3, rules.capacity("bad"), name)
		}
	}
	rules.stop()

	server.Exec(t, `UPDATE rate_limit_rule SET capacity = -1 WHERE id = 3; DELETE FROM rate_limit_rule WHERE id = 4`)
	t.Run("at start", func(t *testing.T) {
		t.Parallel()
		again := begin(t, server.URL(""), Settings{Refresh: time.Minute, Store: store}).loaded(t)
		require.EqualValues(t, 3, again.capacity("bad"), "the last good one is that of the stored snapshot")
		require.Equal(t, 3, again.Snapshot().Len(), "what was deleted meanwhile is gone")
		require.Equal(t, 1, again.Status().Rejected)
	})
	t.Run("at start without a store", func(t *testing.T) {
		t.Parallel()
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
	server.Exec(t, "UPDATE rate_limit_rule SET capacity = 50 WHERE id = 100")
	require.NoError(t, rules.Refresh(t.Context()))
	require.EqualValues(t, 50, rules.capacity("b"), "as it is now, not as it was last in force")
	server.Exec(t, "UPDATE rate_limit_rule SET capacity = -2 WHERE id = 100")
	require.NoError(t, rules.Refresh(t.Context()))
	require.EqualValues(t, 50, rules.capacity("b"), "the last good one where none is good")
}

func TestR8TooMany(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second, MaxRules: 100_000}).listening(t)
	var reads, unlike atomic.Int64
	reading, end := context.WithCancel(t.Context())
	defer end()
	go func() {
		for ; reading.Err() == nil; reads.Add(1) {
			rule, found := Find("t1", "", "a", rules.Await(reading, time.Minute))
			if !found || rule.Capacity != 2 {
				unlike.Add(1)
			}
			time.Sleep(100 * time.Microsecond) // leaves the machine to the load
		}
	}()
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second)
		SELECT 'tenant-' || i, 'r', 5, 5 FROM generate_series(1, 200000) i`)
	within(t, 60*time.Second, "refused again and again", func() bool { return rules.Status().Failures >= 2 })
	end()
	require.Zero(t, unlike.Load(), "requests find their rule as before")
	require.Positive(t, reads.Load())
	require.Equal(t, "the table has more than max_rules (100000) rows", rules.Status().LastError)
	require.Equal(t, 1, rules.Snapshot().Len())
	require.EqualValues(t, 2, rules.capacity("a"))

	// The bound is of the configuration in force.
	stop := rules.Start(Settings{Refresh: time.Second})
	within(t, 60*time.Second, "allowed", func() bool { return rules.Snapshot().Len() == 200_001 })
	stop()
}

// TestBoundedRead reads a view that has more rows each time that it is asked.
func TestBoundedRead(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, turnFunction+`; CREATE VIEW rate_limit_rule AS
		SELECT 't' || i AS tenant_id, 'a' AS route_id, 1 AS capacity, 1 AS refill_per_second FROM generate_series(1, turn()) i`)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Minute, ListenOff: true})
	within(t, 20*time.Second, "refused", func() bool { return rules.Status().LastError == "the view gives other rows each time" })
	require.Nil(t, rules.Snapshot())
}

// turnFunction tells how often it was called in a transaction, which may be one
// that only reads.
const turnFunction = `CREATE FUNCTION turn() RETURNS int VOLATILE LANGUAGE plpgsql AS $$
	DECLARE n int := coalesce(nullif(current_setting('test.turn', true), '')::int, 0) + 1;
	BEGIN
		PERFORM set_config('test.turn', n::text, true);
		RETURN n;
	END $$`

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
	proxy := servertest.NewProxy(t, server.Addr)
	rules := begin(t, servertest.PostgresURL(proxy.Addr(), ""), Settings{Refresh: time.Second}).listening(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				Find("t1", "", "a", rules.Snapshot())
				rules.Await(ctx, time.Second)
				assert.LessOrEqual(t, proxy.Open(), 2, "connections")
				time.Sleep(time.Millisecond)
			}
		})
	}
	readers.Wait()
	statements := server.Statements(t)
	for _, statement := range statements {
		known := false
		for _, prefix := range []string{
			"SELECT pg_backend_pid()", `LISTEN "rate_limit_rule"`, "SET LOCAL row_security = off; SELECT pg_backend_pid()",
			"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		} {
			known = known || strings.HasPrefix(statement.Text, prefix)
		}
		require.True(t, known, statement.Text)
	}
	require.Less(t, len(statements), 40)
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
