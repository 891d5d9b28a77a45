package rulecache

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// proofs counts the statements that prove that changes are announced. Each load
// has one, too.
func proofs(statements []servertest.Statement) int {
	count := 0
	for _, statement := range statements {
		if strings.HasPrefix(statement.Text, "SET LOCAL row_security = off; SELECT pg_backend_pid()") {
			count++
		}
	}
	return count - loads(statements)
}

// TestD7ProofsInPlaceOfPolls leaves a table alone that announces its changes: what
// nine of ten refreshes ask does not look at a row, and keeps the rules young.
func TestD7ProofsInPlaceOfPolls(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second}).listening(t)
	base := server.Statements(t)
	counted := func(count func([]servertest.Statement) int) int { return count(server.Statements(t)) - count(base) }
	age, began := time.Duration(0), time.Now()
	within(t, 60*time.Second, "nine refreshes", func() bool {
		age = max(age, rules.Status().Age)
		return counted(proofs) >= 18
	})
	require.LessOrEqual(t, counted(loads), 2+int(time.Since(began)/(8*time.Second)), "one load in ten refreshes, and those of the start")
	require.Less(t, age, 10*time.Second)
	require.Zero(t, rules.count(EventListenLost))

	// The proof is of the catalog only: a table without any statistics is not scanned.
	require.LessOrEqual(t, server.QueryInt(t, `SELECT seq_scan::int FROM pg_stat_user_tables WHERE relname = 'rate_limit_rule'`), 2*counted(loads)+10)

	// The same without the trigger: a look at the table in each refresh.
	server.Exec(t, `DROP TRIGGER rate_limit_notify ON rate_limit_rule`)
	within(t, 20*time.Second, "it is not announced any more", func() bool { return !rules.Status().Listening })
	base = server.Statements(t)
	within(t, 60*time.Second, "each refresh", func() bool { return counted(loads) >= 5 })
}

// TestD7SilentConnection polls at once where the proof has no answer, and does not
// count it.
func TestD7SilentConnection(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	proxy := servertest.NewProxy(t, server.Addr)
	rules := begin(t, servertest.PostgresURL(proxy.Addr(), ""), Settings{Refresh: 2 * time.Second}).listening(t)
	proxy.Set(t, servertest.Fault{Silent: true})
	last := rules.Status().LastSuccess
	within(t, 60*time.Second, "the loss is seen, and the poll fails", func() bool { return !rules.Status().Listening && rules.Status().Failures > 0 })
	require.Less(t, rules.Status().LastSuccess.Sub(last), 10*time.Second)
	server.Exec(t, updateRule, 7)
	proxy.Set(t, servertest.Fault{})
	within(t, 30*time.Second, "the change is in force", func() bool { return rules.capacity("a") == 7 })
	rules.listening(t)
}

// TestD7LostProofs does not count a proof while a change that was announced is not
// yet read.
func TestD7LostProofs(t *testing.T) {
	t.Parallel()
	source, err := NewSource(Options{DSN: nowhere})
	require.NoError(t, err)
	p, start := source.poller, time.Unix(1_785_000_000, 0)
	p.confirm(start)
	require.True(t, source.Status().LastSuccess.IsZero(), "nothing was ever read")
	source.succeeded(start)
	p.confirm(start.Add(time.Second))
	require.Equal(t, start.Add(time.Second), source.Status().LastSuccess)
	p.confirm(start)
	require.Equal(t, start.Add(time.Second), source.Status().LastSuccess, "never back")
	p.wake()
	p.confirm(start.Add(2 * time.Second))
	require.Equal(t, start.Add(time.Second), source.Status().LastSuccess, "a change is announced")
	require.False(t, p.changed.IsZero(), "and not forgotten")
	p.changed = time.Time{}
	source.failed("timed out")
	p.confirm(start.Add(3 * time.Second))
	require.Equal(t, start.Add(time.Second), source.Status().LastSuccess, "it could not be read")
}

// TestD7Spread begins twenty gateways' loads after one notification within a
// quarter of a second, and not at one instant.
func TestD7Spread(t *testing.T) {
	t.Parallel()
	changed := time.Unix(1_785_000_000, 0)
	p := pace{gap: 500 * time.Millisecond, most: 5 * time.Second, start: changed.Add(-time.Minute)}
	begun := map[time.Time]bool{}
	for range 20 {
		at := p.next(time.Hour, changed, defaultTiming().chance())
		require.False(t, at.Before(changed))
		require.LessOrEqual(t, at.Sub(changed), 250*time.Millisecond)
		begun[at] = true
	}
	require.Greater(t, len(begun), 10)
}

// TestLogicalReplication follows a table that a subscription writes, with the
// triggers of docs/rules.md. Those of the schema are not taken for it.
func TestLogicalReplication(t *testing.T) {
	t.Parallel()
	origin, server := servertest.Postgres(t), servertest.Postgres(t)
	origin.Set(t, "wal_level", "logical")
	origin.Restart(t)
	for _, s := range []*servertest.PostgresServer{origin, server} {
		s.Exec(t, Schema("", ""))
	}
	origin.Exec(t, insertRule, "a", 2)
	origin.Exec(t, `CREATE PUBLICATION rules FOR TABLE rate_limit_rule`)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second}).listening(t)
	host, port, err := net.SplitHostPort(origin.Addr)
	require.NoError(t, err)
	server.Exec(t, fmt.Sprintf(`CREATE SUBSCRIPTION rules CONNECTION 'host=%s port=%s user=postgres dbname=postgres application_name=test' PUBLICATION rules`, host, port))
	within(t, 60*time.Second, "the rows, by polling", func() bool { return rules.capacity("a") == 2 })
	within(t, 20*time.Second, "the statement's trigger is not fired", func() bool { return !rules.Status().Listening })

	docs, err := os.ReadFile("../docs/rules.md")
	require.NoError(t, err)
	_, sql, found := strings.Cut(string(docs), "<!-- not run: TestLogicalReplication does -->\n```sql\n")
	require.True(t, found)
	sql, _, _ = strings.Cut(sql, "```")
	server.PSQL(t, sql)
	rules.listening(t)

	// Now nothing is polled for ten minutes but what is told.
	stop := rules.Start(Settings{Refresh: 10 * time.Minute, Observe: rules.observe})
	defer stop()
	require.NoError(t, rules.Refresh(t.Context()))
	origin.Exec(t, updateRule, 7)
	within(t, 60*time.Second, "an UPDATE", func() bool { return rules.capacity("a") == 7 })
	origin.Exec(t, insertRule, "b", 3)
	within(t, 60*time.Second, "an INSERT", func() bool { return rules.capacity("b") == 3 })
	origin.Exec(t, `DELETE FROM rate_limit_rule WHERE route_id = 'b'`)
	within(t, 60*time.Second, "a DELETE", func() bool { return rules.capacity("b") == 0 })
	origin.Exec(t, `TRUNCATE rate_limit_rule`)
	within(t, 60*time.Second, "a TRUNCATE", func() bool { return rules.Snapshot().Len() == 0 })
	server.Exec(t, `ALTER SUBSCRIPTION rules DISABLE`)
}

// TestD8OneWriter lets twenty gateways share one store: one of them writes.
func TestD8OneWriter(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	store := new(memoryStore)
	var fixtures []*fixture
	for range 20 {
		fixtures = append(fixtures, begin(t, server.URL(""), Settings{Store: store, Refresh: time.Minute, ListenOff: true}).loaded(t))
	}
	_, saves := store.stats()
	within(t, 20*time.Second, "the first one writes", func() bool { _, saves = store.stats(); return saves >= 1 })
	for _, rules := range fixtures {
		rules.stop()
	}
	_, saves = store.stats()
	require.Equal(t, 1, saves)
}

// TestD8Spread lets gateways look at a shared store one after another.
func TestD8Spread(t *testing.T) {
	t.Parallel()
	k, now := keeper{every: time.Minute, spread: 10 * time.Second}, time.Unix(1_785_000_000, 0)
	for _, chance := range []float64{0, 0.5, 1} {
		k.changed(snapshot(t, entry("t1", "a", 1)), now, chance)
		due, pending := k.due()
		require.True(t, pending)
		require.Equal(t, time.Duration(chance*float64(10*time.Second)), due.Sub(now))
	}
}

// TestD8NeverBack does not put older rules in the place of newer ones.
func TestD8NeverBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_785_000_000, 0)
	at := func(capacity int64, loaded time.Time) *Snapshot {
		s := snapshot(t, entry("t1", "a", capacity))
		s.loadedAt = loaded
		return s
	}
	mine := at(1, now.Add(-time.Minute))
	for name, test := range map[string]struct {
		other *Snapshot
		cut   int
		want  bool
	}{
		"the same":              {at(1, now.Add(-time.Hour)), 0, true},
		"older":                 {at(2, now.Add(-time.Hour)), 0, false},
		"newer":                 {at(2, now.Add(-time.Second)), 0, true},
		"of a future":           {at(2, now.Add(time.Hour)), 0, false},
		"the same, cut off":     {at(1, now), 1, false},
		"of the same, the head": {at(1, now), 50, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := test.other.encode()
			require.NoError(t, err)
			require.Equal(t, test.want, outdates(text[:len(text)-test.cut], mine, now))
		})
	}
	require.False(t, outdates(nil, mine, now))
}

// TestD8Future counts the age of stored rules from when they were read, where they
// claim to be from the future.
func TestD8Future(t *testing.T) {
	t.Parallel()
	before := snapshot(t, entry("t1", "a", 2))
	before.loadedAt = time.Now().Add(1000 * time.Hour)
	text, err := before.encode()
	require.NoError(t, err)
	source, err := NewSource(Options{DSN: nowhere})
	require.NoError(t, err)
	var ahead atomic.Int64
	source.poller.timing.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	stop := source.Start(Settings{Store: &memoryStore{text: text}})
	defer stop()
	within(t, 20*time.Second, "the stored rules", func() bool { return source.Snapshot() != nil })
	require.False(t, source.Snapshot().LoadedAt().After(time.Now()))
	ahead.Store(int64(time.Hour))
	require.GreaterOrEqual(t, source.Status().Age, 59*time.Minute)
	ahead.Store(int64(-time.Hour))
	require.Zero(t, source.Status().Age, "a clock that was set back")
	stop()
	require.NoError(t, source.Destruct())
}

// TestBeforeAnyRules pretends nothing about rules that were never known.
func TestBeforeAnyRules(t *testing.T) {
	t.Parallel()
	rules := begin(t, nowhere, Settings{})
	require.Nil(t, rules.Await(context.Background(), 10*time.Second))
	require.Empty(t, rules.Status().Hash)
	require.Zero(t, rules.Status().Age)
}
