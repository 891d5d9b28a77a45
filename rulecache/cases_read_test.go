package rulecache

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// gatedView is a view of the rules which, in each transaction, answers at once
// when it is asked first and the second time waits for a lock.
const gatedView = turnFunction + `;
	CREATE FUNCTION gate() RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN
		IF turn() = 2 THEN PERFORM pg_advisory_lock(1); PERFORM pg_advisory_unlock(1); END IF;
		RETURN 0;
	END $$;
	CREATE VIEW gated AS SELECT id, tenant_id, route_id, capacity + gate() AS capacity, refill_per_second FROM rate_limit_rule`

// TestD1TakenBack changes a rule between the digest and the rows of a load, and
// changes it back afterwards: neither is what it was loaded as.
func TestD1TakenBack(t *testing.T) {
	t.Parallel()
	for _, behind := range []string{"", "statement", "transaction"} {
		t.Run("behind "+behind, func(t *testing.T) {
			t.Parallel()
			server := withTable(t)
			server.Exec(t, gatedView)
			addr := server.Addr
			if behind != "" {
				addr = server.PgBouncer(t, behind, 4)
			}
			ctx := t.Context()
			blocker, err := pgx.Connect(ctx, server.URL("")+"&application_name=test")
			require.NoError(t, err)
			defer blocker.Close(context.WithoutCancel(ctx))
			_, err = blocker.Exec(ctx, "SELECT pg_advisory_lock(1)")
			require.NoError(t, err)

			server.Exec(t, updateRule, 5)
			rules := beginWith(t, Options{DSN: servertest.PostgresURL(addr, ""), Table: "gated"}, Settings{Refresh: time.Second, ListenOff: true})
			within(t, 20*time.Second, "the load is half-way", func() bool {
				return server.QueryInt(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1
			})
			server.Exec(t, updateRule, 9)
			_, err = blocker.Exec(ctx, "SELECT pg_advisory_unlock(1)")
			require.NoError(t, err)
			rules.loaded(t)
			require.EqualValues(t, 5, rules.capacity("a"), "the digest and the rows are of one instant")
			within(t, 20*time.Second, "the next poll sees the change", func() bool { return rules.capacity("a") == 9 })
			server.Exec(t, updateRule, 5)
			within(t, 20*time.Second, "and that it was taken back", func() bool { return rules.capacity("a") == 5 })
		})
	}
}

// TestD1ForcedRefresh reads the rows also where the digest is the one that is known.
func TestD1ForcedRefresh(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: 24 * time.Hour, ListenOff: true}).loaded(t)
	before := rules.Snapshot()
	require.NoError(t, rules.Refresh(t.Context()))
	require.NotSame(t, before, rules.Snapshot(), "read anew")
	require.Equal(t, before.Hash(), rules.Snapshot().Hash())
}

// TestD2RowSecurity does not take the rows that a policy shows for all that there are.
func TestD2RowSecurity(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, insertRule, "b", 3)
	server.Exec(t, `CREATE ROLE gateway LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limit_rule TO gateway;
		GRANT USAGE ON SEQUENCE rate_limit_rule_id_seq TO gateway`)
	dsn := strings.Replace(server.URL(""), "postgres@", "gateway@", 1)
	rules := begin(t, dsn, Settings{Refresh: time.Second}).listening(t)
	refused := func() {
		t.Helper()
		within(t, 20*time.Second, "the failure shows", func() bool { return rules.Status().Failures > 0 && !rules.Status().Listening })
		require.Contains(t, rules.Status().LastError, "row security hides rows")
		require.Equal(t, 2, rules.Snapshot().Len(), "the old rules stay")
		require.ErrorContains(t, rules.Refresh(t.Context()), "row security hides rows")
	}
	server.Exec(t, `ALTER TABLE rate_limit_rule ENABLE ROW LEVEL SECURITY`)
	refused()
	server.Exec(t, `CREATE POLICY part ON rate_limit_rule FOR SELECT TO gateway USING (route_id = 'a')`)
	refused()

	file, err := ReadImport(strings.NewReader(csvHeader+"t1,a,7,1\n"), FormatCSV, nil)
	require.NoError(t, err)
	_, err = Import(t.Context(), file, ImportOptions{Options: Options{DSN: dsn}, Apply: true, DeleteMissing: true})
	require.ErrorContains(t, err, "row security hides rows", "an import deletes nothing that it does not see")

	// Whoever means to show some rows gives a view.
	server.Exec(t, `CREATE VIEW shown AS SELECT * FROM rate_limit_rule WHERE route_id = 'a'; GRANT SELECT ON shown TO gateway`)
	shown := beginWith(t, Options{DSN: dsn, Table: "shown"}, Settings{}).loaded(t)
	require.Equal(t, 1, shown.Snapshot().Len())
	server.Exec(t, `ALTER TABLE rate_limit_rule DISABLE ROW LEVEL SECURITY`)
	within(t, 20*time.Second, "read whole again", func() bool { return rules.Status().Failures == 0 && rules.Status().Listening })
}

// TestD4Spaces rejects names that no request can have.
func TestD4Spaces(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, looseTable)
	for i, name := range []string{" t", "t ", "\tt", "t\n", "t\u00a0", "\u2003t", " "} {
		server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ($1, 'a', 1, 1)`, name)
		server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ($1, $2, 1, 1)`, fmt.Sprint("t", i), name)
		_, err := ReadImport(strings.NewReader(csvHeader+`"`+name+`",a,1,1`), FormatCSV, nil)
		require.ErrorContains(t, err, "begins or ends with white space", "%q", name)
		_, err = ReadImport(strings.NewReader(csvHeader+`t,"`+name+`",1,1`), FormatCSV, nil)
		require.ErrorContains(t, err, "the route", "%q", name)
		_, err = NewSnapshot([]Entry{entry(name, "a", 1)})
		require.Error(t, err)
		require.False(t, MayName(name))
	}
	rules := begin(t, server.URL(""), Settings{}).loaded(t)
	require.Zero(t, rules.Snapshot().Len())
	require.Equal(t, 14, rules.Status().Rejected)

	strict := withTable(t)
	for _, name := range []string{" t", "t ", "t\n"} {
		strict.Exec(t, `DO $$ BEGIN
			INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('`+name+`', 'a', 1, 1);
			RAISE EXCEPTION 'accepted'; EXCEPTION WHEN check_violation THEN NULL; END $$`)
	}
}

// TestD5Digits reads and writes all digits whatever a role's settings are.
func TestD5Digits(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, `UPDATE rate_limit_rule SET refill_per_second = 1.0::float8 / 60;
		CREATE ROLE short LOGIN; ALTER ROLE short SET extra_float_digits = 0; GRANT ALL ON rate_limit_rule TO short;
		CREATE ROLE tiny LOGIN; ALTER ROLE tiny SET extra_float_digits = -10; GRANT ALL ON rate_limit_rule TO tiny;
		GRANT ALL ON SEQUENCE rate_limit_rule_id_seq TO short, tiny`)
	for _, role := range []string{"postgres", "short", "tiny"} {
		dsn := strings.Replace(server.URL(""), "postgres@", role+"@", 1)
		rules := begin(t, dsn, Settings{}).loaded(t)
		rule, _ := rules.Snapshot().Get("t1", "a")
		require.InDelta(t, 1.0/60, rule.Refill, 0, role)
		// A change in the last digit is seen, too.
		server.Exec(t, `UPDATE rate_limit_rule SET refill_per_second = 0.01666666666666667`)
		within(t, 20*time.Second, role, func() bool {
			rule, _ := rules.Snapshot().Get("t1", "a")
			return rule.Refill == 0.01666666666666667
		})
		file, err := ReadImport(strings.NewReader(csvHeader+"t1,a,2,0.016666666666666666\n"), FormatCSV, nil)
		require.NoError(t, err)
		result, err := Import(t.Context(), file, ImportOptions{Options: Options{DSN: dsn}, Apply: true})
		require.NoError(t, err, role)
		require.Equal(t, 1, result.Updated, role)
		require.Equal(t, "0.016666666666666666", *result.Changes[0].Values[0].After, role)
		require.Equal(t, 1, server.QueryInt(t, `SELECT count(*) FROM rate_limit_rule WHERE refill_per_second = 1.0::float8 / 60`), role)
	}
}

// TestD6NoID reads a table and a view without an id, and takes the same one of two
// rows for a pair wherever they stand.
func TestD6NoID(t *testing.T) {
	t.Parallel()
	hashes := map[string]bool{}
	for _, order := range []string{"", "DESC"} {
		server := servertest.Postgres(t)
		server.Exec(t, `CREATE TABLE rate_limit_rule (tenant_id TEXT, route_id TEXT, capacity INT, refill_per_second INT);
			INSERT INTO rate_limit_rule SELECT 't1', 'a', i, 1 FROM generate_series(1, 20) i ORDER BY i `+order+`;
			CREATE VIEW shown AS SELECT i.id, r.* FROM rate_limit_rule r, (VALUES (1)) i(id)`)
		for _, table := range []string{"rate_limit_rule", "shown"} {
			rules := beginWith(t, Options{DSN: server.URL(""), Table: table}, Settings{}).loaded(t)
			require.Equal(t, []int{1, 19}, []int{rules.Status().Rules, rules.Status().Rejected}, table)
			hashes[rules.Snapshot().Hash()] = true
		}
		result, err := imported(t, server, csvHeader+"t2,a,7,1\n", ImportOptions{DeleteMissing: true})
		require.NoError(t, err)
		require.Equal(t, []int{1, 20}, []int{result.Inserted, result.Deleted})
	}
	require.Len(t, hashes, 1)
}

// TestD6NotAnnounced does not call a table announced whose changes are not.
func TestD6NotAnnounced(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, plainTable+`; CREATE VIEW shown AS SELECT * FROM rate_limit_rule`)
	server.Exec(t, insertRule, "a", 2)
	rules := begin(t, server.URL(""), Settings{Refresh: time.Second}).loaded(t)
	view := beginWith(t, Options{DSN: server.URL(""), Table: "shown"}, Settings{Refresh: time.Second}).loaded(t)
	why := string(errUnannounced(DefaultChannel))
	silent := func(f *fixture, what string) {
		t.Helper()
		within(t, 20*time.Second, what, func() bool { return f.Status().PollOnly == why })
		require.False(t, f.Status().Listening)
	}
	silent(rules, "no trigger")
	silent(view, "a view")
	require.Equal(t, 1, rules.count(EventPollOnly))
	server.Exec(t, updateRule, 3)
	within(t, 20*time.Second, "it is polled", func() bool { return rules.capacity("a") == 3 && view.capacity("a") == 3 })

	// What is printed makes it so, over the table that is there, and may be repeated.
	server.PSQL(t, Schema("", ""))
	server.PSQL(t, Schema("", ""))
	rules.listening(t)
	require.Empty(t, rules.Status().PollOnly)
	silent(view, "still a view")

	for what, steps := range map[string][2]string{
		"disabled":        {`ALTER TABLE rate_limit_rule DISABLE TRIGGER rate_limit_notify`, `ALTER TABLE rate_limit_rule ENABLE TRIGGER rate_limit_notify`},
		"replica only":    {`ALTER TABLE rate_limit_rule ENABLE REPLICA TRIGGER rate_limit_notify`, `ALTER TABLE rate_limit_rule ENABLE ALWAYS TRIGGER rate_limit_notify`},
		"another channel": {Schema("", "other"), Schema("", "")},
		"not every change": {`DROP TRIGGER rate_limit_notify ON rate_limit_rule; CREATE TRIGGER rate_limit_notify AFTER INSERT OR UPDATE OR DELETE ON rate_limit_rule
			FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_rule_notify('rate_limit_rule')`, Schema("", "")},
		"some columns": {`DROP TRIGGER rate_limit_notify ON rate_limit_rule; CREATE TRIGGER rate_limit_notify AFTER INSERT OR UPDATE OF capacity OR DELETE OR TRUNCATE ON rate_limit_rule
			FOR EACH STATEMENT EXECUTE FUNCTION rate_limit_rule_notify('rate_limit_rule')`, Schema("", "")},
		"a child": {`CREATE TABLE child () INHERITS (rate_limit_rule)`, `DROP TABLE child; ANALYZE rate_limit_rule`},
	} {
		server.Exec(t, steps[0])
		silent(rules, what)
		server.Exec(t, steps[1])
		rules.listening(t)
	}
}
