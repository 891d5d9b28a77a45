package regions

import (
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// earlier is a copy of the books, to be put back later.
func (m *memory) earlier() memory {
	copied := *m
	copied.regions, copied.gateways = slices.Clone(m.regions), maps.Clone(m.gateways)
	copied.limits, copied.demand = map[limit.Key]Limit{}, map[limit.Key]map[string]float64{}
	for key, row := range m.limits {
		copied.limits[key] = row.clone()
	}
	return copied
}

// TestDatabaseSetBack loses commits, as a fail-over to a replica that lags does,
// again and again while demand moves. Shares may sum to more until each gateway
// has looked again, and never after that: no version is given twice, so nobody
// takes what it knows of lost ones for what is in the table.
func TestDatabaseSetBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		w := newWorld(t, seed)
		names := []string{"eu", "us"}
		for _, name := range names {
			w.add(name)
			w.add(name)
		}
		w.demand = map[string]float64{"eu": 100, "us": 10}
		w.passCalmly(120)
		for round := range 6 {
			kept := w.store.earlier()
			w.demand = map[string]float64{names[round%2]: 10, names[(round+1)%2]: 100}
			w.passCalmly(20 + w.random.IntN(60))
			w.store.regions, w.store.gateways, w.store.limits = kept.regions, kept.gateways, kept.limits
			w.store.demand, w.store.version, w.store.reckoned = kept.demand, kept.version, kept.reckoned
			w.passCalmly(15) // a look takes at most that long
			for range 60 {
				w.most = 0
				w.passCalmly(1)
				require.LessOrEqual(t, w.most, Whole, "seed %d, round %d", seed, round)
			}
		}
	}
}

// TestSharesTruncated loses the table of shares while gateways go by it. It gives
// nothing to anyone until each gateway has read that, and then all of it again.
func TestSharesTruncated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		for _, name := range []string{"eu", "us"} {
			w.add(name)
			w.add(name)
		}
		w.demand = map[string]float64{"eu": 100, "us": 10}
		w.passCalmly(200)
		w.cut["eu"] = seed%2 == 0
		w.demand = map[string]float64{"eu": 10, "us": 100}
		if seed%4 < 2 {
			delete(w.store.limits, Everything())
		} else {
			clear(w.store.limits)
		}
		w.passCalmly(60)
		w.cut["eu"] = false
		w.passCalmly(140)
		require.LessOrEqual(t, w.most, Whole, "seed %d", seed)
		require.Greater(t, w.inForce("us", Everything()), Whole*7/10, "seed %d", seed)
	}
}

// TestPausedGateway stops a process for longer than its shares are valid, by each
// of the clocks alone, and lets it go on: it gives its safe share from the first
// request on, before it has polled.
func TestPausedGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	eu, us := w.add("eu"), w.add("us")
	w.demand = map[string]float64{"eu": 100, "us": 10}
	w.passCalmly(200)
	require.Greater(t, eu.member.shares().all, Whole*7/10)
	eu.busy = true // nothing of it runs
	w.demand["us"] = 100
	w.passCalmly(300)
	require.Greater(t, us.member.shares().all, Whole*9/10)
	require.Equal(t, DefaultSafe, eu.member.shares().all, "before it has polled")
	eu.busy = false
	w.passCalmly(200)
	require.LessOrEqual(t, w.most, Whole)
}

// TestFloodOfOneLimit has one tenant ask for a million times in one region, while
// hundreds ask a little in the other: the limits of those stay where they are.
func TestFloodOfOneLimit(t *testing.T) {
	t.Parallel()
	books := Books{Version: firstVersion, Due: true, Regions: []Region{{"eu", DefaultSafe}, {"us", DefaultSafe}}}
	books.Demands = append(books.Demands, Demand{hot, "us", 1e6})
	for i := range 300 {
		books.Demands = append(books.Demands, Demand{limit.Key{Tenant: "t" + string(rune('a'+i/26)) + string(rune('a'+i%26)), Route: "api"}, "eu", 30})
	}
	made := books.rebalance()
	require.Len(t, made.Limits, 2)
	require.Equal(t, Everything(), made.Limits[0].Key)
	require.Greater(t, made.Limits[0].portion("eu").Target, Whole*8/10)
	require.Equal(t, hot, made.Limits[1].Key)
	require.Greater(t, made.Limits[1].portion("us").Target, Whole*9/10)
}

// TestRegionComesUnderTraffic has regions begin under traffic, both at once and one
// after the other: within a minute or so each has its part, and not after a reckoning.
func TestRegionComesUnderTraffic(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 5, 15, 300} {
		w := newWorld(t, uint64(before))
		w.every = DefaultRebalance
		w.demand = map[string]float64{"eu": 50, "us": 50}
		w.add("eu")
		w.passCalmly(before)
		w.add("us")
		w.passCalmly(1)
		after := 1
		for ; after < 90 && w.inForce("us", Everything()) < Whole*4/10; after++ {
			w.passCalmly(1)
		}
		t.Logf("%d s after the first, us has its part after %d s", before, after)
		require.Less(t, after, 90)
		require.LessOrEqual(t, w.most, Whole)
	}
}

// TestRegionThatCameBackKeepsLess keeps that a region has nothing, too: a restart
// without the database must not give what others have by now.
func TestRegionThatCameBackKeepsLess(t *testing.T) {
	t.Parallel()
	kept := &recorder{value: []byte(`{"region":"us","safe":50000}`)}
	source := newSource(Options{Region: "us"}, newMemory(time.Now))
	p := poller{source: source, settings: Settings{Store: kept, Observe: kept.observe}}
	p.restore(t.Context())
	require.Equal(t, DefaultSafe, source.Shares().all)
	source.member.force.Store(&inForce{fresh: flat(Unknown), fallen: flat(Unknown)})
	p.keep(t.Context())
	require.JSONEq(t, `{"region":"us","safe":500}`, string(kept.value))
}

// TestJobThatHangs stops in the midst of its transaction, as a process that is
// paused or a machine without power does: PostgreSQL ends it, and others go on.
func TestJobThatHangs(t *testing.T) {
	t.Parallel()
	server, other := withTables(t)
	hung := connect(t, server.URL(""))
	require.Equal(t, `SET LOCAL idle_in_transaction_session_timeout = '30s'`, hung.sql.patience)
	hung.sql.patience = `SET LOCAL idle_in_transaction_session_timeout = '2s'` // more than a busy machine idles between two statements
	ctx := t.Context()
	require.NoError(t, other.Announce(ctx, Gateway{ID: "e", Region: "eu", Valid: time.Minute}))
	reached := false
	_, err := hung.Update(ctx, 0, func(books *Books) Changes {
		reached = true
		eventually(t, "another has done the work", func() bool {
			made, err := Job{Books: other}.Run(ctx)
			require.NoError(t, err)
			return made != nil
		})
		return books.rebalance()
	})
	require.True(t, reached, "it hangs in the middle")
	require.Error(t, err, "it has been ended, and writes nothing")
	require.Equal(t, Budget, shares(t, other, "eu")[Everything()])
}

// TestSafeShareIsReadAnew makes every gateway read a safe share that was changed,
// and not only when shares move the next time.
func TestSafeShareIsReadAnew(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	require.NoError(t, tables.Announce(ctx, Gateway{ID: "e", Region: "eu", Valid: time.Minute}))
	_, err := Job{Books: tables}.Run(ctx)
	require.NoError(t, err)
	known, err := tables.View(ctx, "eu", 0)
	require.NoError(t, err)
	for _, safe := range []Share{200_000, 20_000} {
		server.Exec(t, `UPDATE rate_limit_region SET safe = $1 WHERE name = 'eu'`, int32(safe))
		view, err := tables.View(ctx, "eu", known.Version)
		require.NoError(t, err)
		require.False(t, view.Unchanged)
		require.Greater(t, view.Version, known.Version)
		require.Equal(t, safe, view.Safe)
		known = view
	}
}

// TestReportsWithoutAJob fill the table of demand up to its bound only: cron may
// have stopped, and keys may be made up.
func TestReportsWithoutAJob(t *testing.T) {
	t.Parallel()
	server, tables := withTables(t)
	ctx := t.Context()
	for range 100 {
		demand := make([]Demand, reported)
		for i := range demand {
			demand[i] = Demand{Key: limit.Key{Tenant: rand.Text(), Route: "api"}, Units: 1}
		}
		demand = append(demand, Demand{Key: Everything(), Units: 1})
		require.NoError(t, tables.Report(ctx, "eu", demand))
	}
	require.NoError(t, tables.Report(ctx, "us", []Demand{{Key: hot, Units: 7}}))
	rows := server.QueryInt(t, `SELECT count(*) FROM rate_limit_region_demand WHERE region = 'eu'`)
	require.Less(t, rows, 8192+reported+2)
	require.Equal(t, 100*(reported+1), server.QueryInt(t, `SELECT sum(units) FROM rate_limit_region_demand WHERE region = 'eu'`), "nothing is lost")
	require.NoError(t, tables.Report(ctx, "us", []Demand{{Key: hot, Units: 5}}))
	require.Equal(t, 12, server.QueryInt(t, `SELECT units FROM rate_limit_region_demand WHERE region = 'us'`))
}

// TestSeveralHosts writes to the server that takes writes, wherever it stands in
// the address: behind a standby, say, that was the primary before a fail-over.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	standby, primary := servertest.Postgres(t), servertest.Postgres(t)
	standby.Exec(t, Schema(""))
	standby.Exec(t, `ALTER SYSTEM SET default_transaction_read_only = on`)
	standby.Exec(t, `SELECT pg_reload_conf()`)
	eventually(t, "it takes no writes", func() bool {
		return text(t, standby, `SELECT current_setting('default_transaction_read_only')`) == "on"
	})
	primary.Exec(t, Schema(""))
	tables := connect(t, strings.Replace(primary.URL(""), primary.Addr, standby.Addr+","+primary.Addr, 1))
	require.NoError(t, tables.Announce(t.Context(), Gateway{ID: "e", Region: "eu", Valid: time.Minute}))
	require.Equal(t, 1, primary.QueryInt(t, `SELECT count(*) FROM rate_limit_region_gateway`))
}
