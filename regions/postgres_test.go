package regions

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// withTables starts a PostgreSQL that has the tables.
func withTables(t testing.TB) (*servertest.PostgresServer, *Tables) {
	t.Helper()
	server := servertest.Postgres(t)
	server.Exec(t, Schema(""))
	tables := connect(t, server.URL(""))
	return server, tables
}

func connect(t testing.TB, dsn string) *Tables {
	t.Helper()
	tables, err := NewTables(Options{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(tables.Close)
	return tables
}

// age makes a gateway's last sign older, in place of waiting.
const age = `UPDATE rate_limit_region_gateway SET seen_at = seen_at - $1::FLOAT8 * INTERVAL '1 second' WHERE id = $2`

func TestSchemaMayBeRunAgain(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	require.NoError(t, tables.Announce(t.Context(), Gateway{ID: "g", Region: "eu", Valid: time.Minute}))
	server.Exec(t, Schema(""))
	server.PSQL(t, Schema(""))
	view, err := tables.View(t.Context(), "eu", 0)
	require.NoError(t, err)
	require.Equal(t, View{Version: 1, Safe: DefaultSafe, Shares: map[limit.Key]Share{}}, view)

	server.Exec(t, `CREATE SCHEMA "Else where"`)
	server.Exec(t, Schema("Else where"))
	other, err := NewTables(Options{DSN: server.URL(""), Schema: "Else where"})
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.Announce(t.Context(), Gateway{ID: "g", Region: "us", Valid: time.Minute}))
	_, err = Job{Books: other}.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, server.QueryInt(t, `SELECT count(*) FROM "Else where".rate_limit_region_share`))
}

// TestTableHoldsTheSum writes rows past every job: PostgreSQL refuses those that
// are not sound.
func TestTableHoldsTheSum(t *testing.T) {
	t.Parallel()
	server, _ := withTables(t)
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, server.URL(""))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	const insert = `INSERT INTO rate_limit_region_share (tenant_id, route_id, version, regions, targets, shares, held) VALUES ('t', $1, 1, $2, $3, $4, $5)`
	for name, row := range map[string]struct {
		regions               []string
		targets, shares, held []*int32
		sound                 bool
	}{
		"none":                {[]string{}, []*int32{}, []*int32{}, []*int32{}, true},
		"whole":               {[]string{"a", "b"}, ints(1, 991_999), ints(1, 991_999), ints(1, 991_999), true},
		"too much held":       {[]string{"a", "b"}, ints(1, 1), ints(1, 1), ints(1, 992_000), false},
		"too much aimed at":   {[]string{"a", "b"}, ints(1, 992_000), ints(1, 1), ints(1, 1), false},
		"much over":           {[]string{"a", "b"}, ints(1, 1), ints(1, 1), ints(2_147_483_647, 2_147_483_647), false},
		"more than held":      {[]string{"a"}, ints(5), ints(5), ints(4), false},
		"below nothing":       {[]string{"a", "b"}, ints(1, 1), ints(-1, 1), ints(1, 1), false},
		"held below nothing":  {[]string{"a", "b"}, ints(1, 1), ints(-500_000, 1), ints(-500_000, 992_000), false},
		"one region twice":    {[]string{"a", "a"}, ints(1, 1), ints(1, 1), ints(1, 1), false},
		"a share is missing":  {[]string{"a", "b"}, ints(1, 1), ints(1), ints(1, 1), false},
		"a region is missing": {[]string{"a"}, ints(1, 1), ints(1, 1), ints(1, 1), false},
		"NULL":                {[]string{"a"}, ints(1), []*int32{nil}, ints(1), false},
		"held NULL":           {[]string{"a"}, ints(1), ints(1), []*int32{nil}, false},
		"a blank region":      {[]string{""}, ints(1), ints(1), ints(1), false},
	} {
		_, err := conn.Exec(ctx, insert, name, row.regions, row.targets, row.shares, row.held)
		if row.sound {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "rate_limit_region_share_sum", name)
	}
}

func ints(list ...int32) []*int32 {
	made := make([]*int32, len(list))
	for i := range list {
		made[i] = &list[i]
	}
	return made
}

// TestTableHoldsTheSumOfWriters has many raise one region each at once.
func TestTableHoldsTheSumOfWriters(t *testing.T) {
	t.Parallel()
	server, _ := withTables(t)
	server.Exec(t, `INSERT INTO rate_limit_region_share VALUES ('*', '*', 1, '{a,b,c,d}', '{0,0,0,0}', '{0,0,0,0}', '{0,0,0,0}')`)
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			conn, err := pgx.Connect(context.Background(), server.URL(""))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			for range 100 {
				_, _ = conn.Exec(context.Background(), `UPDATE rate_limit_region_share SET shares[$1] = shares[$1] + 7919, held[$1] = held[$1] + 7919`, worker+1)
			}
		})
	}
	wait.Wait()
	require.Equal(t, 992_000/7919*7919, server.QueryInt(t, `SELECT sum(h) FROM rate_limit_region_share, unnest(held) h`))
}

// TestSafeSharesFit holds that the safe shares of all regions fit beside another.
func TestSafeSharesFit(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	for i := range MaxRegions {
		require.NoError(t, tables.Announce(ctx, Gateway{ID: "g", Region: string(rune('a' + i)), Valid: time.Minute}))
	}
	err := tables.Announce(ctx, Gateway{ID: "g", Region: "one-more", Valid: time.Minute})
	require.ErrorIs(t, err, errFull)
	server.Exec(t, `DELETE FROM rate_limit_region WHERE name = 'c'`)
	require.NoError(t, tables.Announce(ctx, Gateway{ID: "g", Region: "one-more", Valid: time.Minute}))
	require.Equal(t, 3, server.QueryInt(t, `SELECT slot FROM rate_limit_region WHERE name = 'one-more'`))
	conn, err := pgx.Connect(ctx, server.URL(""))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, `UPDATE rate_limit_region SET safe = 300000 WHERE name = 'a'`)
	require.ErrorContains(t, err, "the safe shares of all regions sum to more than 992000 millionths")
	_, err = conn.Exec(ctx, `UPDATE rate_limit_region SET safe = 200000 WHERE name = 'a'`)
	require.NoError(t, err)
}

// shares reads those of a region.
func shares(t testing.TB, tables *Tables, region string) map[limit.Key]Share {
	t.Helper()
	view, err := tables.View(context.Background(), region, 0)
	require.NoError(t, err)
	return view.Shares
}

// TestRaiseWaitsInPostgres goes through a lowering and the raise that depends on
// it: by a gateway that has read, by one that has gone, and by one that is silent.
func TestRaiseWaitsInPostgres(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	run := func() *Changes {
		t.Helper()
		made, err := Job{Books: tables, Every: time.Hour}.Run(ctx)
		require.NoError(t, err)
		return made
	}
	seen := func(id, region string, acked int64) {
		t.Helper()
		require.NoError(t, tables.Announce(ctx, Gateway{ID: id, Region: region, Acked: acked, Valid: 10 * time.Second}))
	}
	everything := func(region string) Share { return shares(t, tables, region)[Everything()] }

	seen("e1", "eu", 0)
	seen("e2", "eu", 0)
	first := run().Version
	require.Greater(t, first, time.Now().Add(-time.Hour).UnixMicro(), "a version is a time")
	require.Equal(t, Budget, everything("eu"), "the first region has all there is to have")
	require.Nil(t, run(), "nothing is to do")
	seen("u1", "us", 0)
	made := run()
	require.Equal(t, 1, made.Waiting)
	require.Equal(t, Budget/2, everything("eu"), "nothing was asked of either")
	require.Equal(t, Share(0), everything("us"))
	second := made.Version
	require.Greater(t, second, first)

	for _, acks := range []struct{ e1, e2 int64 }{{first, first}, {second, first}, {first, second}} {
		seen("e1", "eu", acks.e1)
		seen("e2", "eu", acks.e2)
		require.Empty(t, run().Limits)
		require.Equal(t, Share(0), everything("us"), "not everyone has read")
	}
	server.Exec(t, age, 10+0.5+15-3, "e1")
	require.Empty(t, run().Limits, "silent, but for too short")
	server.Exec(t, age, 4, "e1")
	require.Len(t, run().Limits, 1)
	require.Equal(t, Budget/2, everything("us"), "one has read, and the other must have fallen back")
	require.Equal(t, 2, server.QueryInt(t, `SELECT count(*) FROM rate_limit_region_gateway`))

	// The first comes back, and counts again.
	seen("e1", "eu", first)
	require.NoError(t, tables.Report(ctx, "us", []Demand{{Key: Everything(), Units: 1e6}}))
	last, err := Job{Books: tables}.Run(ctx)
	require.NoError(t, err)
	require.Equal(t, DefaultSafe, everything("eu"))
	require.Equal(t, Budget/2, everything("us"))
	seen("e2", "eu", last.Version)
	require.Empty(t, run().Limits)
	require.NoError(t, tables.Leave(ctx, "e1"))
	require.Len(t, run().Limits, 1)
	require.Equal(t, Budget-DefaultSafe, everything("us"))
}

// TestOneJobAtATime has many jobs at once.
func TestOneJobAtATime(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	require.NoError(t, tables.Announce(ctx, Gateway{ID: "e1", Region: "eu", Valid: time.Minute}))
	other := connect(t, server.URL(""))
	ran, err := tables.Update(ctx, 0, func(books *Books) Changes {
		ran, err := other.Update(ctx, 0, func(*Books) Changes { panic("two at once") })
		require.NoError(t, err)
		require.False(t, ran)
		// Gateways read meanwhile, and are not held up.
		view, err := other.View(ctx, "eu", 0)
		require.NoError(t, err)
		require.Equal(t, int64(1), view.Version)
		require.NoError(t, other.Announce(ctx, Gateway{ID: "e2", Region: "eu", Valid: time.Minute}))
		return books.rebalance()
	})
	require.NoError(t, err)
	require.True(t, ran)
	view, err := other.View(ctx, "eu", 1)
	require.NoError(t, err)
	require.Equal(t, Budget, view.Shares[Everything()])
	view, err = other.View(ctx, "eu", view.Version)
	require.NoError(t, err)
	require.True(t, view.Unchanged)
}

// TestDemandIsSummedAndBounded reports more limits than are kept.
func TestDemandIsSummedAndBounded(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	require.NoError(t, tables.Announce(ctx, Gateway{ID: "e1", Region: "eu", Valid: time.Minute}))
	key := limit.Key{Tenant: "shop-a", Route: "api"}
	for range 3 {
		require.NoError(t, tables.Report(ctx, "eu", []Demand{{Key: Everything(), Units: 5}, {Key: key, Units: 100}}))
	}
	server.Exec(t, `INSERT INTO rate_limit_region_demand SELECT 'eu', 'made-up-' || n, 'api', 1.5 FROM generate_series(1, 5000) n`)
	var asked []Demand
	_, err := tables.Update(ctx, 0, func(books *Books) Changes {
		asked = books.Demands
		return books.rebalance()
	})
	require.NoError(t, err)
	require.Len(t, asked, 4097)
	total := 0.0
	for _, d := range asked {
		total += d.Units
		if d.Key == key {
			require.Equal(t, Demand{Key: key, Region: "eu", Units: 300}, d)
		}
	}
	require.InDelta(t, 15+300+1.5*5000, total, 1e-6)
	require.Equal(t, 2, server.QueryInt(t, `SELECT count(*) FROM rate_limit_region_demand`), "what is next to nothing is forgotten")
	require.Equal(t, 150, server.QueryInt(t, `SELECT units::INT FROM rate_limit_region_demand WHERE tenant_id = 'shop-a'`))
}

// TestReportsOfManyGateways do not meet in a deadlock.
func TestReportsOfManyGateways(t *testing.T) {
	t.Parallel()
	server, _ := withTables(t)
	var wait sync.WaitGroup
	for range 4 {
		tables := connect(t, server.URL(""))
		wait.Go(func() {
			for i := range 20 {
				demand := make([]Demand, 0, 200)
				for j := range 200 {
					demand = append(demand, Demand{Key: limit.Key{Tenant: string(rune('a'+(i+j)%26)) + "x", Route: string(rune('a' + j))}, Units: 1})
				}
				if err := tables.Report(context.Background(), "eu", merged(demand, 1000)); err != nil {
					t.Error(err)
				}
				if _, err := (Job{Books: tables}).Run(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
