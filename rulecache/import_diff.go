package rulecache

import (
	"context"
	"strconv"
	"strings"
)

// compare counts the differences between the table and the file, and names the
// first of each kind.
func (i *importing) compare(ctx context.Context, result *ImportResult) error {
	differs := i.rowOf("t.") + " IS DISTINCT FROM " + i.rowOf("f.")
	var named, differing, missing, added int
	counts := []*int{&named, &differing, &missing, &added}
	sql := "SELECT count(*), count(*) FILTER (WHERE " + differs + ") FROM " + i.table + " t JOIN " + importTable + " f ON " + samePair +
		"; SELECT count(*) FROM " + i.table + " t WHERE " + i.missing() +
		"; SELECT count(*) FROM " + importTable + " f WHERE " + i.added()
	next := 0
	err := i.session.Query(ctx, sql, importTimeout, func(_ int, values [][]byte) {
		for _, value := range values {
			*counts[next], _ = strconv.Atoi(string(value))
			next++
		}
	})
	if err != nil {
		return err
	}
	result.Inserted, result.Updated, result.Unchanged, result.Others = added, differing, named-differing, missing
	if i.options.DeleteMissing {
		result.Deleted, result.Others = missing, 0
	}
	return i.name(ctx, result)
}

// name asks for the first differences of each kind that there are.
func (i *importing) name(ctx context.Context, result *ImportResult) error {
	for _, kind := range []struct {
		kind  ChangeKind
		count int
		sql   string
	}{
		{ChangeInsert, result.Inserted, i.listed("NULL::text", "f.%", "f.") +
			importTable + " f WHERE " + i.added() + " ORDER BY f." + lineColumn},
		{ChangeUpdate, result.Updated, i.listed("t.%", "f.%", "t.") +
			i.table + " t JOIN " + importTable + " f ON " + samePair + " WHERE " + i.rowOf("t.") + " IS DISTINCT FROM " + i.rowOf("f.") + " ORDER BY f." + lineColumn},
		{ChangeDelete, result.Deleted, i.listed("t.%", "NULL::text", "t.") +
			i.table + " t WHERE " + i.missing() + " ORDER BY " + i.order()},
	} {
		if kind.count == 0 {
			continue
		}
		sql := kind.sql + " LIMIT " + strconv.Itoa(importShown)
		err := i.session.Query(ctx, sql, importTimeout, func(_ int, values [][]byte) {
			result.Changes = append(result.Changes, i.change(kind.kind, values))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// order is that of rows of the table: of their ids, or, without, of their pairs.
func (i *importing) order() string {
	if _, found := i.types[columnNames()[columnID]]; found {
		return "t.id"
	}
	return "t.tenant_id, t.route_id"
}

// listed begins a statement that asks for the pair, and for each other column of
// the file what it was and what it becomes; % in those stands for its name.
func (i *importing) listed(before, after, pair string) string {
	columns := i.columns(columnCapacity)
	wanted := make([]string, 0, 2+2*len(columns))
	wanted = append(wanted, pair+"tenant_id", pair+"route_id")
	for _, name := range columns {
		wanted = append(wanted, strings.ReplaceAll(before, "%", name), strings.ReplaceAll(after, "%", name))
	}
	return "SELECT " + strings.Join(wanted, ", ") + " FROM "
}

// change makes a change of what listed asks for.
func (i *importing) change(kind ChangeKind, values [][]byte) ImportChange {
	change := ImportChange{Kind: kind, Pair: Pair{Tenant: string(values[0]), Route: string(values[1])}}
	for n, name := range i.columns(columnCapacity) {
		before, after := optional(values[2+2*n]), optional(values[3+2*n])
		if kind == ChangeUpdate && same(before, after) {
			continue
		}
		change.Values = append(change.Values, ImportValue{Column: name, Before: before, After: after})
	}
	return change
}

// optional copies a value, which is only valid for a moment; nil is NULL.
func optional(value []byte) *string {
	if value == nil {
		return nil
	}
	text := string(value)
	return &text
}

func same(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
