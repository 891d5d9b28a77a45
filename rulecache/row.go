package rulecache

import (
	"fmt"
	"math"
	"strconv"

	"github.com/caddygate/ratelimit/limit"
)

// The columns of a row, in the order in which they are asked for.
const (
	columnID = iota
	columnTenant
	columnRoute
	columnCapacity
	columnRefill
	columnAlgorithm
	columnMode
	columnPrefetch
	columnShards
	columnConcurrent
	columnCount
)

// firstOptionalColumn is where the columns begin that a table need not have. Nor
// need it have an id.
const firstOptionalColumn = columnAlgorithm

// columnNames returns the name of each column.
func columnNames() [columnCount]string {
	return [columnCount]string{
		"id", "tenant_id", "route_id", "capacity", "refill_per_second",
		"algorithm", "mode", "prefetch", "shards", "concurrent",
	}
}

// row is a row of the table as text. Nil is NULL, and stands for every column
// that the table does not have.
type row [columnCount][]byte

// add makes a rule of r, or counts it as rejected. Rows come in the order of
// their ids, or else of their values, so that of two for one pair the later one wins.
func (b *builder) add(r *row) {
	pair := Pair{Tenant: string(r[columnTenant]), Route: string(r[columnRoute])}
	if err := pair.check(); err != nil {
		b.reject(Rejection{ID: string(r[columnID]), Reason: err.Error()})
		return
	}
	rule, err := r.rule()
	if err != nil {
		// Another row of the pair that is good counts as it is now: what was last in
		// force would hide each change of it.
		if _, another := b.rules.get(pair); !another {
			b.kept[pair] = struct{}{}
		}
		b.reject(Rejection{ID: string(r[columnID]), Route: pair.Route, Reason: err.Error()})
		return
	}
	delete(b.kept, pair)
	if b.rules.set(pair, rule) {
		b.reject(Rejection{
			ID: string(r[columnID]), Route: pair.Route,
			Reason: "duplicate: another row, which comes before it by its id or else by its values, has the same tenant and route, and is passed over",
		})
	}
}

// rule reads the numbers and words of r.
func (r *row) rule() (limit.Rule, error) {
	var rule limit.Rule
	var err error
	if rule.Capacity, err = r.whole(columnCapacity); err != nil {
		return limit.Rule{}, err
	}
	if rule.Refill, err = r.number(columnRefill); err != nil {
		return limit.Rule{}, err
	}
	if err := r.options(&rule); err != nil {
		return limit.Rule{}, err
	}
	return limit.NewRule(rule)
}

// options reads the optional columns into rule; NULL leaves them to the handler.
func (r *row) options(rule *limit.Rule) (err error) {
	if word := r[columnAlgorithm]; word != nil {
		if rule.Algorithm, err = limit.ParseAlgorithm(string(word)); err != nil {
			return err
		}
	}
	if word := r[columnMode]; word != nil {
		if rule.Mode, err = limit.ParseMode(string(word)); err != nil {
			return err
		}
	}
	if rule.Prefetch, err = r.prefetch(); err != nil {
		return err
	}
	if rule.Shards, err = r.shards(); err != nil {
		return err
	}
	rule.Concurrent, err = r.concurrent()
	return err
}

func (r *row) prefetch() (int32, error) {
	switch text := r[columnPrefetch]; {
	case text == nil:
		return 0, nil
	case string(text) == "auto":
		return limit.PrefetchAuto, nil
	}
	n, err := r.whole(columnPrefetch)
	switch {
	case err != nil:
		return 0, err
	case n < 0 || n > limit.MaxPrefetch:
		return 0, fmt.Errorf("prefetch %d is out of bounds: allowed are 0 to %d, and auto", n, limit.MaxPrefetch)
	case n == 0:
		return limit.PrefetchOff, nil
	}
	return int32(n), nil
}

func (r *row) shards() (uint8, error) {
	if r[columnShards] == nil {
		return 0, nil
	}
	n, err := r.whole(columnShards)
	if err == nil && (n < 1 || n > limit.MaxShards) {
		err = fmt.Errorf("shards %d is out of bounds: allowed are 1 to %d", n, limit.MaxShards)
	}
	return uint8(n), err
}

func (r *row) concurrent() (int64, error) {
	if r[columnConcurrent] == nil {
		return 0, nil
	}
	n, err := r.whole(columnConcurrent)
	if err == nil {
		_, err = limit.NewPlaces(n)
	}
	return n, err
}

// whole reads a whole number, which a numeric column may write as 10.00.
func (r *row) whole(column int) (int64, error) {
	text := r[column]
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return n, nil
	}
	x, err := r.number(column)
	if err != nil {
		return 0, err
	}
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("%s %q is not a whole number within bounds", columnNames()[column], text)
	}
	return int64(x), nil
}

// number reads a number; whether it is finite and within bounds is for limit.NewRule.
func (r *row) number(column int) (float64, error) {
	if r[column] == nil {
		return 0, fmt.Errorf("%s is NULL", columnNames()[column])
	}
	x, err := strconv.ParseFloat(string(r[column]), 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a number within bounds", columnNames()[column], r[column])
	}
	return x, nil
}
