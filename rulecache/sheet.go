package rulecache

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sheet is one table that a load reads: how it is asked for, and what comes of it.
type sheet struct {
	// what names it in an error, setting in the transaction, table in SQL.
	what, setting, table string
	// columns are those that are wanted, in order; a row has NULL for one that the
	// table does not have.
	columns []string
	// most refuses a table with more rows.
	most int
	// make is called where rows are to come, and returns what takes each.
	make func(size int) (add func(values [][]byte))

	used    []string // the columns that the table has
	prefix  string   // names them in a mark
	known   string   // the mark when it was last read, without the prefix
	by      string   // the order of rows
	mark    string
	count   int
	seen    int
	reading bool
	add     func(values [][]byte)
}

// order says how rows are ordered, the same on every gateway: by their ids, which
// costs little where an index has them, and where those do not tell the rows apart,
// by all values.
func (s *sheet) order(has []string, known string, keyed bool) {
	for _, name := range s.columns {
		if slices.Contains(has, name) {
			s.used = append(s.used, name)
		}
	}
	s.prefix = strings.Join(s.used, ",") + " "
	s.known, _ = strings.CutPrefix(known, s.prefix)
	s.by = `ROW(` + strings.Join(s.used, ", ") + `)::text COLLATE "C"`
	switch id := s.columns[0]; {
	case keyed:
		s.by = id
	case s.used[0] == id:
		s.by = id + ", " + s.by
	}
}

// digest counts the rows and sums up hashes of them, so that it needs no order
// and sees every change, whatever its time or transaction. It looks no further than
// one row behind those that are allowed. Last it tells, also to the statement that
// follows, whether the rows are to be read.
func (s *sheet) digest() string {
	return `SELECT count, mark, set_config('caddy_rate_limit.` + s.setting + `', (count <= ` + strconv.Itoa(s.most) +
		` AND mark <> ` + quoteLiteral(s.known) + `)::text, TRUE)
	FROM (SELECT count(*), count(*) || ' ' || coalesce(sum(hash), 0) AS mark
		FROM (SELECT hashtextextended(ROW(` + strings.Join(s.used, ", ") + `)::text, 0) AS hash
			FROM ` + s.table + ` LIMIT ` + strconv.Itoa(s.most+1) + `) hashes) digest`
}

// rows asks for the rows. Texts are cut behind the longest that can be right, so
// that memory is bounded.
func (s *sheet) rows() string {
	var wanted []string
	for _, name := range s.columns {
		if slices.Contains(s.used, name) {
			wanted = append(wanted, "left("+name+"::text, "+strconv.Itoa(maxNameLength+1)+")")
		} else {
			wanted = append(wanted, "NULL")
		}
	}
	return "SELECT " + strings.Join(wanted, ", ") + " FROM " + s.table +
		" WHERE current_setting('caddy_rate_limit." + s.setting + "') = 'true' ORDER BY " + s.by + " LIMIT " + strconv.Itoa(s.most)
}

// begin reads the digest.
func (s *sheet) begin(values [][]byte) {
	s.count, _ = strconv.Atoi(string(values[0]))
	s.mark = s.prefix + string(values[1])
	if s.reading = string(values[2]) == "true"; s.reading {
		s.add = s.make(s.count)
	}
}

// check reports why what was read cannot be taken.
func (s *sheet) check() error {
	switch {
	case s.count > s.most:
		return fault(fmt.Sprintf("the %s has more than max_rules (%d) rows", s.what, s.most))
	case s.reading && s.seen != s.count:
		return fault("the view gives other rows each time")
	}
	return nil
}
