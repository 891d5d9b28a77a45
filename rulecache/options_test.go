package rulecache

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/pg"
	"github.com/caddygate/ratelimit/internal/servertest"
)

func TestOptionsAllowed(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{DSN: "postgres://h/db"},
		{DSN: "postgresql://u:p%40%2F%3F%23@h:6432/db?sslmode=require&application_name=x"},
		{DSN: "postgres://u@h1:5432,h2:5433/db?target_session_attrs=read-write"},
		{DSN: "postgres://u@[::1]:5432/db"},
		{DSN: "postgres://u@[::1]/db"},
		{DSN: "postgres:///db?host=/var/run/postgresql"},
		{DSN: "postgres://u:p?q=r@h/db?sslmode=disable"},
		{DSN: "postgres://u:p#q@h/db"},
		{DSN: "postgres://h/db?options=-csearch_path%3Dx&search_path=y"},
		{DSN: "postgres://h/db", Table: "rules"},
		{DSN: "postgres://h/db", Table: `Odd "schema".odd table`},
	} {
		require.NoError(t, o.Validate(), o)
		_, err := NewSource(o)
		require.NoError(t, err, o)
	}
}

func TestO6Secrets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ dsn, want string }{
		{"", "must be a URL"},
		{"host=h user=u-5ecret password=5ecret", "must be a URL"},
		{"mysql://u-5ecret:5ecret@h/db", "must be a URL"},
		{"postgres:/u-5ecret:5ecret@h/db", "must be a URL"},
		{"postgres://u-5ecret:5ecret@h:x5ecret/db", "the port is not a number"},
		{"postgres://u-5ecret:5ecret@h:99999/db", "the port is not a number"},
		{"postgres://u-5ecret:5ec/ret@h/db", "percent-encoded"},
		{"postgres://u-5ecret:5ec@ret@h/db", "percent-encoded"},
		{"postgres://u-5ecret:12/5ecret?5ecret=x@h/db", "percent-encoded"},
		{"postgres://u-5ecret:5ecret@h/db%zz", "cannot be used"},
		{"postgres://u-5ecret:5ecret%zz@h/db", "cannot be used"},
		{"postgres://u-5ecret:5ecret@h/db?pool_max_conns=9", "query parameter pool_max_conns is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?connect_timeout=9", "query parameter connect_timeout is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?max_retries=2", "query parameter max_retries is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?statement_timeout=2", "query parameter statement_timeout is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?default_query_exec_mode=exec", "query parameter default_query_exec_mode is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?password=5ecret", "query parameter password is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?service=x", "query parameter service is not allowed"},
		{"postgres://u-5ecret:5ecret@h/db?sslmode=require&sslmode=disable", "query parameter sslmode is given twice"},
		{"postgres://u-5ecret:5ecret@h/db?sslmode=5ecret", "query parameter sslmode must be one of disable"},
		{"postgres://u-5ecret:5ecret@h/db?target_session_attrs=5ecret", "query parameter target_session_attrs must be one of any"},
		{"postgres://u-5ecret:5ecret@h/db?sslmode", "query parameter sslmode has no value"},
		{"postgres://u-5ecret:5ecret@h/db?5ecret=1", "query parameter number 1 is not of the form"},
		{"postgres://u-5ecret:5ecret@h/db?sslrootcert=/5ecret", "the file that query parameter sslrootcert names cannot be read"},
		{"postgres://u-5ecret:5ecret@h/db?sslmode=require&sslcert=/5ecret", "the file that query parameter sslcert names cannot be read"},
		{"postgres://u-5ecret:5ecret@h1:1,h2:2,h3:3/db?host=h4&port=1%2C2", "cannot be used"},
	} {
		dsn, want := test.dsn, test.want
		err := Options{DSN: dsn}.Validate()
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "5ecret", dsn)
		_, err = NewSource(Options{DSN: dsn})
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "5ecret", dsn)
	}
	broken := t.TempDir() + "/broken"
	require.NoError(t, os.WriteFile(broken, []byte("5ecret"), 0o600))
	err := Options{DSN: "postgres://u-5ecret:5ecret@h/db?sslmode=verify-full&sslrootcert=" + broken}.Validate()
	require.ErrorContains(t, err, "the settings of TLS")
	require.NotContains(t, err.Error(), "5ecret")
}

// TestO6SecretsInService lets a server refuse the user, and looks at all that
// can be seen of it.
func TestO6SecretsInService(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	for dsn, want := range map[string]string{
		strings.Replace(server.URL(""), "postgres@", "u-5ecret:5ecret@", 1):         "the user or password is not accepted (SQLSTATE 28000)",
		strings.Replace(server.URL("d-5ecret"), "postgres@", "postgres:5ecret@", 1): "the database does not exist (SQLSTATE 3D000)",
		"postgres://u-5ecret:5ecret@127.0.0.1:1/d-5ecret":                           "connection refused",
		"postgres://u-5ecret:5ecret@h-5ecret.invalid/d-5ecret":                      "the host's name was not found",
	} {
		rules := begin(t, dsn, Settings{Refresh: time.Second})
		within(t, 20*time.Second, want, func() bool { return rules.Status().Failures > 1 })
		err := rules.Refresh(context.Background())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "5ecret")
		require.Equal(t, want, rules.Status().LastError)
		rules.recorder.mu.Lock()
		require.NotEmpty(t, rules.events)
		for _, event := range rules.events {
			require.ErrorContains(t, event.Err, want)
			require.NotContains(t, event.Err.Error(), "5ecret")
		}
		rules.recorder.mu.Unlock()
		rules.stop()
	}
}

func TestTableNames(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"a.b.c":                    "one dot",
		"a.":                       "empty",
		".a":                       "empty",
		"a\nb":                     "control character",
		"a\x00b":                   "control character",
		strings.Repeat("x", 64):    "64 bytes",
		"a." + string([]byte{255}): "UTF-8",
	} {
		require.ErrorContains(t, Options{DSN: "postgres://h/db", Table: table}.Validate(), want)
	}
	quoted, err := Options{Table: `Odd"s.x; DROP TABLE y`}.identifier()
	require.NoError(t, err)
	require.Equal(t, `"Odd""s"."x; DROP TABLE y"`, quoted)
}

func TestPoolKey(t *testing.T) {
	t.Parallel()
	one := Options{DSN: "postgres://u:5ecret@h/db"}
	require.Len(t, one.PoolKey(), 64)
	require.Equal(t, one.PoolKey(), Options{DSN: one.DSN, Table: DefaultTable}.PoolKey())
	require.NotEqual(t, one.PoolKey(), Options{DSN: one.DSN, Table: "other"}.PoolKey())
	require.NotEqual(t, one.PoolKey(), Options{DSN: one.DSN + "2"}.PoolKey())
}

func TestRedactKnowsNoWords(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("5ecret"), &pgconn.PgError{Code: "5ecret", Message: "5ecret"}, &pgconn.PgError{Code: "XX000", Message: "5ecret"},
	} {
		require.NotContains(t, pg.Describe(err).Error(), "5ecret")
	}
}

func TestSchemaRunsInPSQL(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.PSQL(t, Schema("", ""))
	server.PSQL(t, `CREATE SCHEMA "Odd ""schema";`+Schema(`Odd "schema.it's :odd $$ \ %s @channel `+strings.Repeat("ж", 18), `a"b'c\d :e @table`))
	server.PSQL(t, Schema(strings.Repeat("x", 63), "x"))
	require.Equal(t, 3, server.QueryInt(t, `SELECT count(*) FROM pg_trigger WHERE tgname = 'rate_limit_notify'`))
	for _, bad := range []string{
		`'t', 'r', 0, 1`, `'t', 'r', 1, 0`, `'t', 'r', 1, 'NaN'`, `'t', 'r', 1, 'Infinity'`, `'', 'r', 1, 1`, `'t', '/r', 1, 1`,
	} {
		server.PSQL(t, `DO $$ BEGIN
			INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES (`+bad+`);
			RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = 'accepted';
			EXCEPTION WHEN check_violation THEN NULL; END $$`)
	}
}

// TestR6EveryChange sees each kind of statement by its notification.
func TestR6EveryChange(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	rules := begin(t, server.URL(""), Settings{Refresh: 10 * time.Minute}).listening(t)
	for _, step := range []struct {
		sql  string
		want int64
	}{
		{`UPDATE rate_limit_rule SET capacity = 3`, 3},
		{`DELETE FROM rate_limit_rule`, 0},
		{`INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', 'a', 4, 0.5)`, 4},
		{`TRUNCATE rate_limit_rule`, 0},
	} {
		server.Exec(t, step.sql)
		within(t, 10*time.Second, step.sql, func() bool { return rules.capacity("a") == step.want })
	}
}

// TestStoreKey finds the last good rules again after a password was changed.
func TestStoreKey(t *testing.T) {
	t.Parallel()
	key := func(dsn, table string) string { return Options{DSN: dsn, Table: table}.StoreKey() }
	same := key("postgres://gateway:old@db1:5432/rules", "")
	require.Len(t, same, 64)
	require.Equal(t, same, key("postgres://gateway:new@db1/rules?application_name=gw", "rate_limit_rule"))
	for _, other := range []string{
		key("postgres://gateway:old@db2/rules", ""), key("postgres://gateway:old@db1:5433/rules", ""),
		key("postgres://gateway:old@db1/other", ""), key("postgres://gateway:old@db1/rules", "other"),
	} {
		require.NotEqual(t, same, other)
	}
	require.Empty(t, key("nonsense", ""))
}
