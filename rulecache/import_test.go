package rulecache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// imported runs an import of CSV.
func imported(t *testing.T, server *servertest.PostgresServer, file string, o ImportOptions) (*ImportResult, error) {
	t.Helper()
	read, err := ReadImport(strings.NewReader(file), FormatCSV, nil)
	require.NoError(t, err)
	o.Options.DSN = server.URL("")
	return Import(t.Context(), read, o)
}

// table returns the rows of the plain columns, in order.
func table(t *testing.T, server *servertest.PostgresServer) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), "SELECT concat_ws(' ', tenant_id, route_id, capacity, refill_per_second) FROM rate_limit_rule ORDER BY tenant_id, route_id, capacity")
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

// TestImport shows the differences, writes them when told to, and then has none.
func TestImport(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]string{"plain": plainTable, "schema": Schema("", "")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Postgres(t)
			server.Exec(t, schema)
			server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, updated_at)
				VALUES ('same', 'a', 1, 1, 'yesterday'), ('other', 'a', 2, 1, 'yesterday'), ('gone', '*', 3, 1, 'yesterday')`)
			file := csvHeader + "new,a,4,4\nsame,a,1,1\nother,a,5,1\n"
			want := &ImportResult{Inserted: 1, Updated: 1, Unchanged: 1, Others: 1, Changes: []ImportChange{
				{ChangeInsert, Pair{"new", "a"}, []ImportValue{{"capacity", nil, new("4")}, {"refill_per_second", nil, new("4")}}},
				{ChangeUpdate, Pair{"other", "a"}, []ImportValue{{"capacity", new("2"), new("5")}}},
			}}
			before := table(t, server)
			result, err := imported(t, server, file, ImportOptions{})
			require.NoError(t, err)
			require.Equal(t, want, result)
			require.Equal(t, before, table(t, server), "nothing was written")

			want.Others, want.Deleted = 0, 1
			want.Changes = append(want.Changes, ImportChange{ChangeDelete, Pair{"gone", "*"}, []ImportValue{{"capacity", new("3"), nil}, {"refill_per_second", new("1"), nil}}})
			result, err = imported(t, server, file, ImportOptions{DeleteMissing: true})
			require.NoError(t, err)
			require.Equal(t, want, result)
			require.Equal(t, 3, result.Rows())

			want.Applied = true
			result, err = imported(t, server, file, ImportOptions{DeleteMissing: true, Apply: true})
			require.NoError(t, err)
			require.Equal(t, want, result)
			require.Equal(t, []string{"new a 4 4", "other a 5 1", "same a 1 1"}, table(t, server))
			require.Equal(t, 2, server.QueryInt(t, "SELECT count(*)::int FROM rate_limit_rule WHERE updated_at > now() - interval '1 hour'"))

			result, err = imported(t, server, file, ImportOptions{DeleteMissing: true, Apply: true})
			require.NoError(t, err)
			require.Equal(t, &ImportResult{Unchanged: 3, Applied: true}, result)
		})
	}
}

// TestImportOptionalColumns writes those that the file has, and leaves others.
func TestImportOptionalColumns(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, Schema("", ""))
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, mode, shards, prefetch) VALUES ('t', 'a', 1, 1, 'shadow', 3, '5')`)
	result, err := imported(t, server, "tenant_id,route_id,capacity,refill_per_second,mode,prefetch\nt,a,1,0.25,,auto\n", ImportOptions{Apply: true})
	require.NoError(t, err)
	require.Equal(t, []ImportChange{{ChangeUpdate, Pair{"t", "a"}, []ImportValue{
		{"refill_per_second", new("1"), new("0.25")}, {"mode", new("shadow"), nil}, {"prefetch", new("5"), new("auto")},
	}}}, result.Changes)
	require.Equal(t, 1, server.QueryInt(t, "SELECT count(*)::int FROM rate_limit_rule WHERE mode IS NULL AND shards = 3 AND prefetch = 'auto' AND refill_per_second = 0.25"))
}

// TestImportNotifiesOnce changes rows in three ways and is heard once; one that
// changes nothing is not heard.
func TestImportNotifiesOnce(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, insertRule, "b", 2)
	conn, err := pgx.Connect(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), "LISTEN rate_limit_rule")
	require.NoError(t, err)
	for range 2 {
		_, err = imported(t, server, csvHeader+"t1,a,7,1\nt1,c,7,1\n", ImportOptions{Apply: true, DeleteMissing: true})
		require.NoError(t, err)
	}
	server.Exec(t, "NOTIFY rate_limit_rule, 'end'")
	var heard []string
	for len(heard) == 0 || heard[len(heard)-1] != "end" {
		notification, err := conn.WaitForNotification(t.Context())
		require.NoError(t, err)
		heard = append(heard, notification.Payload)
	}
	require.Equal(t, []string{"", "end"}, heard)
}

// TestImportFitsTheTable refuses what the table cannot hold, with the line, and
// writes nothing.
func TestImportFitsTheTable(t *testing.T) {
	t.Parallel()
	const columns = "id BIGSERIAL PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, route_id VARCHAR(64) NOT NULL, capacity INT NOT NULL, refill_per_second "
	for name, test := range map[string]struct{ table, file, want string }{
		"no table":        {"SELECT 1", csvHeader + "a,b,1,1\n", "the table rate_limit_rule does not exist: `caddy rate-limit schema` prints the SQL that creates it"},
		"no capacity":     {"CREATE TABLE rate_limit_rule (tenant_id TEXT, route_id TEXT, refill_per_second INT)", csvHeader + "a,b,1,1\n", "the table has no column capacity"},
		"no mode":         {plainTable, "tenant_id,route_id,capacity,refill_per_second,mode\na,b,1,1,deny\n", "the table has no column mode, which the file has: add it"},
		"fraction":        {plainTable, csvHeader + "a,b,1,1\na,c,1,0.5\n", "line 3: refill_per_second 0.5 is not whole, and the table's column is for whole numbers"},
		"too few digits":  {"CREATE TABLE rate_limit_rule (" + columns + "NUMERIC(10,2))", csvHeader + "a,b,1,1\na,c,1,0.005\n", "line 3: refill_per_second 0.005 would be stored as 0.01"},
		"too long":        {"CREATE TABLE rate_limit_rule (id BIGSERIAL, tenant_id VARCHAR(3), route_id TEXT, capacity INT, refill_per_second INT)", csvHeader + "\n\nabc,b,1,1\nabcd,b,1,1\n", "line 5: a value is too long for the table's column tenant_id"},
		"out of range":    {"CREATE TABLE rate_limit_rule (id BIGSERIAL, tenant_id TEXT, route_id TEXT, capacity SMALLINT, refill_per_second INT)", csvHeader + "a,b,40000,1\n", "line 2: a value does not fit the type of the table's column capacity"},
		"constraint":      {plainTable + "; ALTER TABLE rate_limit_rule ADD CONSTRAINT small CHECK (capacity < 100)", csvHeader + "a,b,1,1\nb,b,100,1\n", "line 3: the table's constraint small is violated"},
		"column required": {"CREATE TABLE rate_limit_rule (" + columns + "INT, owner TEXT NOT NULL)", csvHeader + "a,b,1,1\n", "the table's column owner must not be NULL and has no default"},
		"a trigger": {
			plainTable + "; CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE TRIGGER no BEFORE INSERT ON rate_limit_rule FOR EACH ROW EXECUTE FUNCTION no()",
			csvHeader + "a,b,1,1\n", "the table took other changes than those of the file",
		},
		"a trigger that changes values": {
			plainTable + "; CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.capacity = 2 * NEW.capacity; RETURN NEW; END'; CREATE TRIGGER twice BEFORE INSERT OR UPDATE ON rate_limit_rule FOR EACH ROW EXECUTE FUNCTION twice()",
			csvHeader + "a,b,1,1\n", "the table took other changes than those of the file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Postgres(t)
			server.Exec(t, test.table)
			result, err := imported(t, server, test.file, ImportOptions{Apply: true})
			require.Nil(t, result)
			require.ErrorContains(t, err, test.want)
			if name != "no table" {
				require.Zero(t, server.QueryInt(t, "SELECT count(*)::int FROM rate_limit_rule"))
			}
		})
	}
}

// TestImportLeavesOtherColumnsToTheirDefaults takes what the table takes: a
// constraint on a column that the file cannot have is met by the default.
func TestImportLeavesOtherColumnsToTheirDefaults(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, plainTable+`; ALTER TABLE rate_limit_rule ADD created_by TEXT NOT NULL DEFAULT current_user CHECK (created_by IS NOT NULL AND created_by <> ''),
		ADD number INT GENERATED ALWAYS AS IDENTITY, ADD twice BIGINT GENERATED ALWAYS AS (capacity * 2) STORED`)
	for range 3 {
		_, err := imported(t, server, csvHeader+"a,b,1,1\n", ImportOptions{})
		require.NoError(t, err)
	}
	_, err := imported(t, server, csvHeader+"a,b,1,1\n", ImportOptions{Apply: true})
	require.NoError(t, err)
	require.Equal(t, 1, server.QueryInt(t, "SELECT count(*)::int FROM rate_limit_rule WHERE created_by = current_user AND twice = 2 AND id = 1 AND number = 1"), "a look uses no number up")
}

// TestImportMeetsOthers goes on beside readers, waits for writers, and gives up
// when it is interrupted, whereupon nothing is left of it.
func TestImportMeetsOthers(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	holder, err := pgx.Connect(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer holder.Close(context.WithoutCancel(t.Context()))
	begin := func(sql string) {
		_, err := holder.Exec(t.Context(), "BEGIN; "+sql)
		require.NoError(t, err)
	}
	file := csvHeader + "t1,a,9,1\n"
	begin("SELECT * FROM rate_limit_rule")
	result, err := imported(t, server, file, ImportOptions{Apply: true})
	require.NoError(t, err, "a reader is in nobody's way")
	require.Equal(t, 1, result.Updated)
	_, err = holder.Exec(t.Context(), "COMMIT; BEGIN; UPDATE rate_limit_rule SET capacity = 3")
	require.NoError(t, err)

	_, err = imported(t, server, file, ImportOptions{})
	require.NoError(t, err, "the differences are shown without a lock")

	ctx, cancel := context.WithCancel(t.Context())
	read, err := ReadImport(strings.NewReader(file), FormatCSV, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := Import(ctx, read, ImportOptions{Options: Options{DSN: server.URL("")}, Apply: true})
		ended <- err
	}()
	const waiting = "SELECT count(*)::int FROM pg_locks WHERE NOT granted"
	within(t, 10*time.Second, "waiting for the lock", func() bool { return server.QueryInt(t, waiting) == 1 })
	cancel()
	require.ErrorContains(t, <-ended, "stopped")
	_, err = holder.Exec(t.Context(), "COMMIT")
	require.NoError(t, err)
	within(t, 10*time.Second, "no session left", func() bool {
		return server.QueryInt(t, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'caddy_rate_limit'") == 0
	})
	require.Equal(t, []string{"t1 a 3 1"}, table(t, server))
}

// TestImportDuplicatesInTheTable brings every row of a pair in line, where the
// table may have several.
func TestImportDuplicatesInTheTable(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	server.Exec(t, looseTable)
	server.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES
		('t', 'a', 1, 1), ('t', 'a', 2, 1), (NULL, 'a', 1, 1), ('bad', NULL, 'NaN', 'NaN')`)
	result, err := imported(t, server, csvHeader+"t,a,2,1\n", ImportOptions{Apply: true, DeleteMissing: true})
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 1}, []int{result.Inserted, result.Updated, result.Deleted, result.Unchanged})
	require.Equal(t, []string{"t a 2 1", "t a 2 1"}, table(t, server))
}

// TestImportGivesNothingAway names neither the password nor the user.
func TestImportGivesNothingAway(t *testing.T) {
	t.Parallel()
	read, err := ReadImport(strings.NewReader(csvHeader+"t,a,2,1\n"), FormatCSV, nil)
	require.NoError(t, err)
	for _, dsn := range []string{
		"postgres://bob:secret@" + servertest.FreeAddr(t) + "/gateway", "postgres://bob:secret@127.0.0.1:0/x",
		"bob:secret", "postgres://bob:se@cret@127.0.0.1/x",
	} {
		_, err := Import(t.Context(), read, ImportOptions{Options: Options{DSN: dsn}})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "cret")
		require.NotContains(t, err.Error(), "bob")
	}
}

// TestImportShows names the first ten of each kind, and tells how far it is.
func TestImportShows(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	var file strings.Builder
	file.WriteString(csvHeader)
	for i := range 2500 {
		file.WriteString("tenant-" + strconv.Itoa(i) + ",a,1,1\n")
	}
	lines, sent := 0, 0
	read, err := ReadImport(strings.NewReader(file.String()), FormatCSV, func(n int) { lines = n })
	require.NoError(t, err)
	result, err := Import(t.Context(), read, ImportOptions{
		Options: Options{DSN: server.URL("")}, DeleteMissing: true, Progress: func(step string, n int) {
			if step == "sending" {
				sent = n
			}
		},
	})
	require.NoError(t, err)
	require.Equal(t, []int{2000, 2500}, []int{lines, sent})
	require.Equal(t, []int{2500, 1, 11}, []int{result.Inserted, result.Deleted, len(result.Changes)})
}

// TestImportCommitFault says where it is not known what was written.
func TestImportCommitFault(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, new(importing).commitFault(errors.New("connection reset")), ErrUnknownOutcome)
	require.ErrorIs(t, new(importing).commitFault(fmt.Errorf("reading: %w", context.Canceled)), ErrUnknownOutcome)
}
