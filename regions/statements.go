package regions

import (
	"hash/fnv"
	"strconv"
)

// statements are the SQL of Tables.
type statements struct {
	region, announce, leave, view, report  string
	lock, open, prune, acked, limits       string
	regions, freeze, demand, decay, forget string
	bounded, save, remove, close, patience string
}

// lockKey is the advisory lock of the one job that is at work on the tables of a
// schema. Where two schemas share it, their jobs take turns.
func lockKey(namespace string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte("rate_limit_region\x00" + namespace)) // never fails
	return strconv.FormatInt(int64(hash.Sum64()), 10)
}

// newStatements puts the names of the tables into the SQL.
func newStatements(namespace string) statements {
	s := statements{
		region: `INSERT INTO @region (name, slot)
			SELECT $1, (SELECT min(n) FROM generate_series(1, 16) n WHERE NOT EXISTS (SELECT FROM @region r WHERE r.slot = n))
			ON CONFLICT (name) DO NOTHING`,
		announce: `INSERT INTO @gateway AS g (id, region, acked, valid_ms, seen_at) VALUES ($1, $2, $3, $4, clock_timestamp())
			ON CONFLICT (id) DO UPDATE SET region = EXCLUDED.region, acked = EXCLUDED.acked, valid_ms = EXCLUDED.valid_ms,
				seen_at = GREATEST(g.seen_at, clock_timestamp())
			RETURNING EXISTS (SELECT FROM @region r WHERE r.name = $2)`,
		leave: `DELETE FROM @gateway WHERE id = $1`,
		view: `SELECT b.version, r.safe, s.tenant_id, s.route_id, s.shares[array_position(s.regions, $1::TEXT)]
			FROM @books b LEFT JOIN @region r ON r.name = $1 AND b.version <> $2
			LEFT JOIN @share s ON b.version <> $2`,
		report: addDemand,

		lock: `SELECT CASE WHEN ` + due + ` OR EXISTS (SELECT FROM @share s WHERE ` + underWay + `)
				THEN pg_try_advisory_xact_lock(` + lockKey(namespace) + `) ELSE FALSE END
			FROM @books b`,
		patience: `SET LOCAL idle_in_transaction_session_timeout = '30s'`,

		open:    `SELECT b.version, ` + nextVersion + `, ` + due + ` FROM @books b FOR UPDATE`,
		prune:   `DELETE FROM @gateway WHERE ` + gone,
		acked:   `SELECT region, min(acked), count(*) FROM @gateway WHERE NOT (` + gone + `) GROUP BY region`,
		regions: `SELECT name, safe FROM @region ORDER BY slot`,
		limits: `SELECT tenant_id, route_id, version, regions, targets, shares, held FROM @share
			s WHERE $1 OR ` + underWay,

		freeze:  `LOCK TABLE @demand IN EXCLUSIVE MODE`,
		demand:  `SELECT region, tenant_id, route_id, units FROM @demand`,
		decay:   `UPDATE @demand SET units = units / 2`,
		forget:  `DELETE FROM @demand WHERE units < 1`,
		bounded: boundDemand,

		save: `INSERT INTO @share AS s (tenant_id, route_id, version, regions, targets, shares, held)
			VALUES ($1, $2, $3, $4::TEXT[], $5::INT[], $6::INT[], $7::INT[])
			ON CONFLICT (tenant_id, route_id) DO UPDATE SET version = EXCLUDED.version, regions = EXCLUDED.regions,
				targets = EXCLUDED.targets, shares = EXCLUDED.shares, held = EXCLUDED.held`,
		remove: `DELETE FROM @share WHERE tenant_id = $1 AND route_id = $2`,
		close: `UPDATE @books SET version = $1,
			reckoned_at = CASE WHEN $2 THEN clock_timestamp() ELSE reckoned_at END`,
	}
	for _, sql := range s.all() {
		*sql = within(*sql, namespace)
	}
	return s
}

// nextVersion is that of the next change: the time in microseconds. A database
// that was set back to an earlier state, by a fail-over say, never gives a version
// twice, and no gateway has acknowledged what it has not read.
const nextVersion = `GREATEST(b.version + 1, (EXTRACT(epoch FROM clock_timestamp()) * 1000000)::BIGINT)`

// due tells whether shares are to be reckoned: the time has come, the clock was
// set back, a region waits to be given its first, or one has come just
// now, whose demand nobody knew then.
const due = `(b.reckoned_at IS NULL OR clock_timestamp() - b.reckoned_at >= $1::FLOAT8 * INTERVAL '1 second'
	OR (clock_timestamp() - b.reckoned_at >= INTERVAL '10 seconds' AND EXISTS (SELECT FROM @region r
		WHERE r.joined_at BETWEEN clock_timestamp() - INTERVAL '90 seconds' AND clock_timestamp()))
	OR b.reckoned_at > clock_timestamp() + INTERVAL '1 minute'
	OR EXISTS (SELECT FROM @region r WHERE NOT EXISTS (SELECT FROM @share s
		WHERE s.tenant_id = '*' AND s.route_id = '*' AND r.name = ANY (s.regions))))`

// underWay tells whether a limit is on its way to other shares.
const underWay = `(s.targets <> s.shares OR s.held <> s.shares)`

// gone tells that a gateway has certainly fallen back to its safe share: it was
// not seen for as long as it goes by what it read, and a twentieth of that and
// Margin longer.
const gone = `clock_timestamp() - seen_at > (valid_ms * 1.05 + 15000) * INTERVAL '1 millisecond'`

// addDemand adds to the demand of a region, and what is new to the rest where too
// many limits are kept already, as when nobody runs the job.
const addDemand = `WITH kept AS (SELECT count(*) >= 8192 AS enough FROM @demand WHERE region = $1),
	n AS (
		SELECT CASE WHEN folded THEN '*' ELSE tenant END AS tenant, CASE WHEN folded THEN '*' ELSE route END AS route, sum(units) AS units
		FROM (
			SELECT a.*, kept.enough AND a.tenant <> '*' AND NOT EXISTS (
				SELECT FROM @demand d WHERE d.region = $1 AND d.tenant_id = a.tenant AND d.route_id = a.route) AS folded
			FROM kept, unnest($2::TEXT[], $3::TEXT[], $4::FLOAT8[]) AS a(tenant, route, units)) asked
		GROUP BY 1, 2)
	INSERT INTO @demand AS d (region, tenant_id, route_id, units)
	SELECT $1, n.tenant, n.route, n.units FROM n ORDER BY n.tenant COLLATE "C", n.route COLLATE "C"
	ON CONFLICT (region, tenant_id, route_id) DO UPDATE SET units = d.units + EXCLUDED.units`

// boundDemand adds what is over the number of limits that are kept to the rest of
// its region.
const boundDemand = `WITH over AS (
		DELETE FROM @demand WHERE (region, tenant_id, route_id) IN (
			SELECT region, tenant_id, route_id FROM (
				SELECT region, tenant_id, route_id, row_number() OVER (PARTITION BY region ORDER BY units DESC) AS place
				FROM @demand WHERE tenant_id <> '*') ranked WHERE place > 4096)
		RETURNING region, units)
	INSERT INTO @demand AS d (region, tenant_id, route_id, units)
	SELECT region, '*', '*', sum(units) FROM over GROUP BY region
	ON CONFLICT (region, tenant_id, route_id) DO UPDATE SET units = d.units + EXCLUDED.units`

func (s *statements) all() []*string {
	return []*string{
		&s.region, &s.announce, &s.leave, &s.view, &s.report, &s.lock, &s.open, &s.prune, &s.acked, &s.limits,
		&s.regions, &s.freeze, &s.demand, &s.decay, &s.forget, &s.bounded, &s.save, &s.remove, &s.close, &s.patience,
	}
}
