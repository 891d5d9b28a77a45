package rulecache

import (
	"context"
	"fmt"
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
}

// result is what a reading found.
type result struct {
	description
	// rules are the rows read; nil where the table has not changed.
	rules *builder
	// mark is a digest of the table as it was read.
	mark string
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
	sql := "SET LOCAL row_security = off; SELECT pg_backend_pid(), pg_is_in_recovery(), " + r.announced() + ", " + r.keyed() +
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
	return found, nil
}

// announced is SQL that tells whether enabled triggers of ours notify the channel
// of each INSERT, UPDATE, DELETE and TRUNCATE (the bits 4, 16, 8 and 32). What
// logical replication applies fires only those that are always enabled, of the first
// three only those for each row, and it notifies nobody before PostgreSQL 15. Writes
// to a partition or a child pass by the triggers of its parent.
func (r reading) announced() string {
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
	WHERE c.oid = ` + quoteLiteral(r.table) + `::regclass GROUP BY c.relkind, c.relhassubclass)`
}

// keyed is SQL that tells whether an index holds that ids are unique.
func (r reading) keyed() string {
	return `EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
	WHERE indrelid = ` + quoteLiteral(r.table) + `::regclass AND attname = 'id' AND attnotnull
		AND indnkeyatts = 1 AND indisunique AND indisvalid AND indpred IS NULL
		AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = indrelid))`
}

// load reads a digest of the table and, where that is another than the one that is
// known, its rows: in one message, so that every pooling mode passes it on, and of
// one snapshot, so that the mark is that of the rows.
func (r reading) load(ctx context.Context, s *pg.Session, found *result) error {
	used := r.used(found.columns)
	prefix := strings.Join(used, ",") + " "
	known, _ := strings.CutPrefix(r.known, prefix)
	sql := []string{
		"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
		"SET LOCAL row_security = off",
		"SET LOCAL extra_float_digits = 3", // every digit, whatever the role's setting
		r.digest(used, known),
		r.rows(used, found.keyed),
		"COMMIT",
	}
	const digest, rows = 3, 4
	var rules *builder
	count, seen := 0, 0
	patience := answerTimeout + time.Duration(r.maxRules)*answerTimePerRule
	err := s.Query(ctx, strings.Join(sql, "; "), patience, func(statement int, values [][]byte) {
		switch statement {
		case digest:
			count, _ = strconv.Atoi(string(values[0]))
			found.mark = prefix + string(values[1])
			if string(values[2]) == "true" {
				rules = newBuilder(count)
			}
		case rows:
			seen++
			rules.add((*row)(values))
		}
	})
	switch {
	case err != nil:
		return err
	case count > r.maxRules:
		return fault(fmt.Sprintf("the table has more than max_rules (%d) rows", r.maxRules))
	case rules != nil && seen != count:
		return fault("the view gives other rows each time")
	}
	found.rules = rules
	return nil
}

// used returns the columns of a rule that the table has.
func (r reading) used(columns []string) []string {
	var used []string
	for _, name := range columnNames() {
		if slices.Contains(columns, name) {
			used = append(used, name)
		}
	}
	return used
}

// digest counts the rows and sums up hashes of them, so that it needs no order
// and sees every change, whatever its time or transaction. It looks no further than
// one row behind those that are allowed. Last it tells, also to the statement that
// follows, whether the rows are to be read.
func (r reading) digest(used []string, known string) string {
	return `SELECT count, mark, set_config('caddy_rate_limit.read', (count <= ` + strconv.Itoa(r.maxRules) +
		` AND mark <> ` + quoteLiteral(known) + `)::text, TRUE)
	FROM (SELECT count(*), count(*) || ' ' || coalesce(sum(hash), 0) AS mark
		FROM (SELECT hashtextextended(ROW(` + strings.Join(used, ", ") + `)::text, 0) AS hash
			FROM ` + r.table + ` LIMIT ` + strconv.Itoa(r.maxRules+1) + `) hashes) digest`
}

// rows asks for the rows in the same order on every gateway: that of their ids, which
// costs little where an index has them, and where those do not tell the rows apart,
// of all values. Texts are cut behind the longest that can be right, so that memory is
// bounded.
func (r reading) rows(used []string, keyed bool) string {
	var wanted []string
	for _, name := range columnNames() {
		if slices.Contains(used, name) {
			wanted = append(wanted, "left("+name+"::text, "+strconv.Itoa(maxNameLength+1)+")")
		} else {
			wanted = append(wanted, "NULL")
		}
	}
	id := columnNames()[columnID]
	order := `ROW(` + strings.Join(used, ", ") + `)::text COLLATE "C"`
	switch {
	case keyed:
		order = id
	case used[0] == id:
		order = id + ", " + order
	}
	return "SELECT " + strings.Join(wanted, ", ") + " FROM " + r.table +
		" WHERE current_setting('caddy_rate_limit.read') = 'true' ORDER BY " + order + " LIMIT " + strconv.Itoa(r.maxRules)
}
