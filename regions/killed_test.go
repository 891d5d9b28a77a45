package regions

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// killer ends the connection at the start of statement number at, counted from 0.
type killer struct{ at, seen int }

func (k *killer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if k.seen == k.at {
		_ = conn.PgConn().Conn().Close()
	}
	k.seen++
	return ctx
}

func (k *killer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// rowsOf is all that a job may change; versions are times.
const rowsOf = `SELECT regexp_replace(coalesce(string_agg(r, ';' ORDER BY r), ''), '\d{16}', 'time', 'g') FROM (
	SELECT s::TEXT r FROM rate_limit_region_share s UNION ALL SELECT version::TEXT FROM rate_limit_region_books
	UNION ALL SELECT d::TEXT FROM rate_limit_region_demand d) x`

// TestJobKilledAtEachStatement ends a job at each of its statements, in a real
// PostgreSQL: all is as before, or as after, and the next job goes on.
func TestJobKilledAtEachStatement(t *testing.T) {
	t.Parallel()
	server, _ := withTables(t)
	ctx := t.Context()
	before, after := stateOf(t, server, -1)
	require.NotEqual(t, before, after)
	killed := 0
	for at := 0; ; at++ {
		reset(t, server)
		unchanged, found := stateOf(t, server, at)
		if found == after && unchanged != found {
			require.Greater(t, killed, 8)
			return // it needs no more statements than that
		}
		require.Equal(t, unchanged, found, "killed at statement %d", at)
		killed++
		eventually(t, "PostgreSQL has seen that the killed job is gone", func() bool {
			return text(t, server, `SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'`) == "0"
		})
		_, err := Job{Books: connect(t, server.URL(""))}.Run(ctx)
		require.NoError(t, err)
		require.Equal(t, after, text(t, server, rowsOf))
	}
}

// reset empties the tables.
func reset(t *testing.T, server *servertest.PostgresServer) {
	t.Helper()
	server.Exec(t, `TRUNCATE rate_limit_region, rate_limit_region_share, rate_limit_region_gateway, rate_limit_region_demand, rate_limit_region_books`)
	server.Exec(t, Schema(""))
}

// stateOf makes two regions with demand, runs a job that is killed at a statement,
// and returns what the tables held before it and hold after.
func stateOf(t *testing.T, server *servertest.PostgresServer, at int) (before, after string) {
	t.Helper()
	ctx := t.Context()
	tables := connect(t, server.URL(""))
	for _, g := range []Gateway{{ID: "e", Region: "eu", Valid: time.Minute}, {ID: "u", Region: "us", Valid: time.Minute}} {
		require.NoError(t, tables.Announce(ctx, g))
		require.NoError(t, tables.Report(ctx, g.Region, []Demand{{Key: Everything(), Units: 4096}}))
	}
	_, err := Job{Books: tables}.Run(ctx)
	require.NoError(t, err)
	require.NoError(t, tables.Report(ctx, "us", []Demand{{Key: Everything(), Units: 65536}, {Key: limit.Key{Tenant: "t", Route: "r"}, Units: 1024}}))
	require.NoError(t, tables.Report(ctx, "eu", []Demand{{Key: limit.Key{Tenant: "x", Route: "r"}, Units: 8192}}))
	before = text(t, server, rowsOf)
	mortal := connect(t, server.URL(""))
	mortal.tracer = &killer{at: at}
	_, err = Job{Books: mortal}.Run(ctx)
	after = text(t, server, rowsOf)
	if after == before {
		require.Error(t, err)
	}
	return before, after
}

func text(t testing.TB, server *servertest.PostgresServer, sql string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), server.URL(""))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(context.Background(), sql).Scan(&value))
	return value
}
