package regions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/limit"
)

// TestSharesInForceWithPostgres lets gateways of three regions poll, report, run
// jobs, die at any statement and come anew, in any order, with a real PostgreSQL.
// Nothing is so old there that its age would prove anything.
func TestSharesInForceWithPostgres(t *testing.T) {
	t.Parallel()
	rounds := 100
	if servertest.Thorough(t, "250 rounds instead of 100") {
		rounds = 250
	}
	server, _ := withTables(t)
	random := rand.New(rand.NewPCG(11, 12))
	ctx := context.Background()
	names := []string{"eu", "us", "ap"}
	type gateway struct {
		*member
		tables *Tables
	}
	started := 0
	start := func(region string) *gateway {
		tables := connect(t, server.URL(""))
		g := &gateway{&member{reader: tables, id: fmt.Sprint(region, started), region: region, valid: 24 * time.Hour, now: time.Now}, tables}
		started++
		g.start(Unknown)
		return g
	}
	var gateways []*gateway
	most := Share(0)
	check := func() {
		for _, key := range []limit.Key{Everything(), hot} {
			inForce := map[string]Share{}
			for _, g := range gateways {
				inForce[g.region] = max(inForce[g.region], g.shares().of(key))
			}
			sum := Share(0)
			for _, share := range inForce {
				sum += share
			}
			most = max(most, sum)
			require.LessOrEqual(t, sum, Whole)
		}
	}
	for range rounds {
		if len(gateways) < 6 {
			gateways = append(gateways, start(names[random.IntN(len(names))]))
		}
		i := random.IntN(len(gateways))
		g := gateways[i]
		mortal := random.IntN(6) == 0
		if mortal {
			g.tables.tracer = &killer{at: random.IntN(20)}
			g.tables.Close() // the next connection is traced
		}
		_, err := g.poll(ctx)
		check()
		if err == nil {
			units := float64(random.IntN(1000))
			_ = g.tables.Report(ctx, g.region, []Demand{{Key: Everything(), Units: units}, {Key: hot, Units: 1000 - units}})
			_, _ = Job{Books: g.tables}.Run(ctx)
		}
		g.tables.tracer = nil
		g.tables.Close()
		check()
		if mortal && random.IntN(2) == 0 {
			// It stops in good order: what it gave is out of use.
			gateways = append(gateways[:i], gateways[i+1:]...)
			require.NoError(t, g.tables.Leave(ctx, g.id))
			g.tables.Close()
		}
	}
	moves := server.QueryInt(t, `SELECT version FROM rate_limit_region_books`)
	t.Logf("at most %.4f in force, version %d", most.Fraction(), moves)
	require.Greater(t, moves, rounds/5)
}
