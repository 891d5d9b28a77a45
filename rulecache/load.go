package rulecache

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddygate/ratelimit/internal/pg"
)

const (
	// answerTimeout bounds the wait for a digest of the table, and for each further
	// part of it, together with answerTimePerRule.
	answerTimeout = 15 * time.Second
	// answerTimePerRule is what each rule that is allowed adds to it.
	answerTimePerRule = 10 * time.Microsecond
)

// reading is one load of the table.
type reading struct {
	// table is the table's name as SQL can hold it.
	table string
	// channel is that of the notifications; "" where nobody asks whether there are any.
	channel string
	// maxRules refuses a table with more rows.
	maxRules int
	// known is the mark of the table when it was last read.
	known string
	// tenants is the name of the table of tenants as SQL can hold it; "" for none.
	tenants string
	// knownTenants is the mark of that table when it was last read.
	knownTenants string
}

// result is what a reading found.
type result struct {
	description
	// rules are the rows read; nil where the table has not changed.
	rules *builder
	// mark is a digest of the table as it was read.
	mark string
	// members are the tenants read; nil where their table has not changed, or is none.
	members *memberBuilder
	// memberMark is a digest of the table of tenants as it was read.
	memberMark string
}

// description is what the catalog tells of the table and its server.
type description struct {
	// columns are those of the table.
	columns []string
	// pooled and standby tell why notifications cannot arrive.
	pooled, standby bool
	// announced tells that the table's trigger notifies the channel of every change.
	announced bool
	// keyed tells that no two rows have the same id.
	keyed bool
	// memberColumns are those of the table of tenants.
	memberColumns []string
}

// read loads the table unless it has not changed since the mark was taken.
func (r reading) read(ctx context.Context, s *pg.Session) (found result, err error) {
	if found.description, err = r.describe(ctx, s, s.Patience); err != nil {
		return found, err
	}
	return found, r.load(ctx, s, &found)
}

// describe asks what the catalog tells, and whether the table may be read whole: a
// row that row security hides is an error, too. It takes no longer for a large
// table, and asks in one message, because a pooler may give each another session.
func (r reading) describe(ctx context.Context, s *pg.Session, patience time.Duration) (found description, err error) {
	sql := "SET LOCAL row_security = off; SELECT pg_backend_pid(), pg_is_in_recovery(), " + r.announced(r.table) + ", " + r.keyed() +
		"; SELECT * FROM " + r.table + " LIMIT 0"
	found.columns, err = s.Columns(ctx, sql, patience, func(values [][]byte) {
		found.pooled = string(values[0]) != strconv.FormatUint(uint64(s.Conn.PID()), 10)
		found.standby = string(values[1]) == "t"
		found.announced = string(values[2]) == "t"
		found.keyed = string(values[3]) == "t"
	})
	if err != nil {
		return found, err
	}
	known := columnNames()
	for _, name := range known[columnTenant:firstOptionalColumn] {
		if !slices.Contains(found.columns, name) {
			return found, fault("the table has no column " + name)
		}
	}
	if r.tenants != "" {
		err = r.describeTenants(ctx, s, patience, &found)
	}
	return found, err
}

// describeTenants asks the same of the table of tenants.
func (r reading) describeTenants(ctx context.Context, s *pg.Session, patience time.Duration, found *description) (err error) {
	sql := "SET LOCAL row_security = off; SELECT " + r.announced(r.tenants) + "; SELECT * FROM " + r.tenants + " LIMIT 0"
	found.memberColumns, err = s.Columns(ctx, sql, patience, func(values [][]byte) {
		found.announced = found.announced && string(values[0]) == "t"
	})
	if err == nil && !slices.Contains(found.memberColumns, memberColumns()[columnMember]) {
		err = fault("the table of tenants has no column " + memberColumns()[columnMember])
	}
	return err
}

// announced is SQL that tells whether enabled triggers of ours notify the channel
// of each INSERT, UPDATE, DELETE and TRUNCATE (the bits 4, 16, 8 and 32). What
// logical replication applies fires only those that are always enabled, of the first
// three only those for each row, and it notifies nobody before PostgreSQL 15. Writes
// to a partition or a child pass by the triggers of its parent.
func (r reading) announced(table string) string {
	if r.channel == "" {
		return "FALSE"
	}
	return `(SELECT c.relkind = 'r' AND NOT c.relhassubclass AND coalesce(bit_or(CASE
		WHEN NOT replicated AND tgenabled IN ('O', 'A') THEN tgtype & 60
		WHEN replicated AND tgenabled = 'A' AND current_setting('server_version_num')::int >= 150000 THEN tgtype & CASE WHEN tgtype & 1 = 1 THEN 28 ELSE 32 END
		ELSE 0 END), 0) = 60
	FROM pg_class c
	CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = c.oid) AS replicated) s
	LEFT JOIN pg_trigger ON tgrelid = c.oid AND left(tgname, 17) = 'rate_limit_notify' AND tgattr::text = '' AND tgqual IS NULL
		AND tgargs = convert_to(` + quoteLiteral(r.channel) + `, getdatabaseencoding()) || decode('00', 'hex')
	WHERE c.oid = ` + quoteLiteral(table) + `::regclass GROUP BY c.relkind, c.relhassubclass)`
}

// keyed is SQL that tells whether an index holds that ids are unique.
func (r reading) keyed() string {
	return `EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
	WHERE indrelid = ` + quoteLiteral(r.table) + `::regclass AND attname = 'id' AND attnotnull
		AND indnkeyatts = 1 AND indisunique AND indisvalid AND indpred IS NULL
		AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = indrelid))`
}

// load reads a digest of each table and, where that is another than the one that is
// known, its rows: in one message, so that every pooling mode passes it on, and of
// one snapshot, so that the mark is that of the rows, and rules and tenants fit.
func (r reading) load(ctx context.Context, s *pg.Session, found *result) error {
	sheets := r.sheets(found)
	const first = 3
	sql := append(make([]string, 0, first+2*len(sheets)+1),
		"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		"SET LOCAL row_security = off",
		"SET LOCAL extra_float_digits = 3", // every digit, whatever the role's setting
	)
	for _, sheet := range sheets {
		sql = append(sql, sheet.digest(), sheet.rows())
	}
	sql = append(sql, "COMMIT")
	patience := answerTimeout + time.Duration(r.maxRules)*answerTimePerRule
	err := s.Query(ctx, strings.Join(sql, "; "), patience, func(statement int, values [][]byte) {
		sheet := sheets[(statement-first)/2]
		if (statement-first)%2 == 0 {
			sheet.begin(values)
		} else {
			sheet.seen++
			sheet.add(values)
		}
	})
	if err != nil {
		return err
	}
	for _, sheet := range sheets {
		if err := sheet.check(); err != nil {
			return err
		}
	}
	found.mark = sheets[0].mark
	if len(sheets) > 1 {
		found.memberMark = sheets[1].mark
	}
	return nil
}

// sheets are the tables that are read, that of rules first.
func (r reading) sheets(found *result) []*sheet {
	known := columnNames()
	rules := &sheet{what: "table", setting: "rules", table: r.table, columns: known[:], most: r.maxRules}
	rules.order(found.columns, r.known, found.keyed)
	rules.make = func(size int) func(values [][]byte) {
		found.rules = newBuilder(size)
		return func(values [][]byte) { found.rules.add((*row)(values)) }
	}
	if r.tenants == "" {
		return []*sheet{rules}
	}
	tenants := &sheet{what: "table of tenants", setting: "tenants", table: r.tenants, columns: memberColumns(), most: r.maxRules}
	tenants.order(found.memberColumns, r.knownTenants, false)
	tenants.make = func(size int) func(values [][]byte) {
		found.members = newMemberBuilder(size)
		return found.members.add
	}
	return []*sheet{rules, tenants}
}
