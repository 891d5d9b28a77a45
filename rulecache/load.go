package rulecache

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// reading is one load of the table.
type reading struct {
	// table is the table's name as SQL can hold it.
	table string
	// maxRules refuses a table with more rows.
	maxRules int
	// known is the mark of the table when it was last read.
	known string
}

// result is what a reading found.
type result struct {
	// rules are the rows read; nil where the table has not changed.
	rules *builder
	// mark is a digest of the table, taken before it was read, so that a change
	// in between shows at the next load.
	mark string
	// pooled and standby tell why notifications cannot arrive.
	pooled, standby bool
}

// read loads the table unless it has not changed since the mark was taken.
func (r reading) read(ctx context.Context, s *session) (result, error) {
	found, columns, err := r.describe(ctx, s)
	if err != nil {
		return found, err
	}
	count, mark, err := r.digest(ctx, s, columns)
	switch {
	case err != nil:
		return found, err
	case count > int64(r.maxRules):
		return found, r.tooMany()
	}
	found.mark = mark
	if mark == r.known {
		return found, nil
	}
	found.rules, err = r.rows(ctx, s, columns, int(count))
	return found, err
}

func (r reading) tooMany() error {
	return fault(fmt.Sprintf("the table has more than max_rules (%d) rows", r.maxRules))
}

// describe asks which columns there are, and what kind of server answers.
func (r reading) describe(ctx context.Context, s *session) (result, []string, error) {
	var found result
	names, err := s.columns(ctx, "SELECT pg_backend_pid(), pg_is_in_recovery(); SELECT * FROM "+r.table+" LIMIT 0",
		func(values [][]byte) {
			found.pooled = string(values[0]) != strconv.FormatUint(uint64(s.conn.PID()), 10)
			found.standby = string(values[1]) == "t"
		})
	if err != nil {
		return found, nil, err
	}
	known := columnNames()
	for _, name := range known[:firstOptionalColumn] {
		if !slices.Contains(names, name) {
			return found, nil, fault("the table has no column " + name)
		}
	}
	return found, names, nil
}

// digest counts the rows and sums up hashes of them, so that it needs no order
// and sees every change, whatever its time or transaction.
func (r reading) digest(ctx context.Context, s *session, columns []string) (count int64, mark string, err error) {
	var used []string
	for _, name := range columnNames() {
		if slices.Contains(columns, name) {
			used = append(used, name)
		}
	}
	sql := "SELECT count(*), coalesce(sum(hashtextextended(ROW(" + strings.Join(used, ", ") + ")::text, 0)), 0) FROM " + r.table
	err = s.query(ctx, sql, answerTimeout, func(_ int, values [][]byte) {
		count, _ = strconv.ParseInt(string(values[0]), 10, 64)
		mark = strings.Join(used, ",") + " " + string(values[0]) + " " + string(values[1])
	})
	return count, mark, err
}

// rows reads the whole table in one statement, so that it is of one instant.
// Texts are cut behind the longest that can be right, so that memory is bounded.
func (r reading) rows(ctx context.Context, s *session, columns []string, expected int) (*builder, error) {
	var wanted []string
	for _, name := range columnNames() {
		if slices.Contains(columns, name) {
			wanted = append(wanted, "left("+name+"::text, "+strconv.Itoa(maxNameLength+1)+")")
		} else {
			wanted = append(wanted, "NULL")
		}
	}
	sql := "SELECT " + strings.Join(wanted, ", ") + " FROM " + r.table + " ORDER BY id LIMIT " + strconv.Itoa(r.maxRules+1)
	rules := newBuilder(expected)
	count := 0
	err := s.query(ctx, sql, answerTimeout, func(_ int, values [][]byte) {
		count++
		if len(values) == columnCount && count <= r.maxRules {
			rules.add((*row)(values))
		}
	})
	switch {
	case err != nil:
		return nil, err
	case count > r.maxRules:
		return nil, r.tooMany()
	}
	return rules, nil
}
