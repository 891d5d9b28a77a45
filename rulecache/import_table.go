package rulecache

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddygate/ratelimit/internal/pg"
)

const (
	// importTable is where the file goes first. It is gone when the transaction ends.
	importTable = "pg_temp.rate_limit_import"
	// lineColumn and refillColumn are what it has besides the table's columns.
	lineColumn   = "rate_limit_import_line"
	refillColumn = "rate_limit_import_refill"

	// samePair joins the table, t, with the file, f.
	samePair = "t.tenant_id = f.tenant_id AND t.route_id = f.route_id"

	// tableLockTimeout bounds the wait for another transaction that writes rules.
	tableLockTimeout = 10 * time.Second
)

// importing is one import, over one connection.
type importing struct {
	session *pg.Session
	file    *ImportFile
	options ImportOptions
	table   string
	types   map[string]string // of the table's columns
}

// run is the transaction. It is rolled back by the end of the connection where
// it fails.
func (i *importing) run(ctx context.Context) (*ImportResult, error) {
	// The table is seen whole and with every digit, whatever the role's settings.
	begin := fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = %d; SET LOCAL row_security = off; SET LOCAL extra_float_digits = 3", tableLockTimeout.Milliseconds())
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return i.exec(ctx, begin) },
		i.describe, i.prepare, i.send, i.checkDigits, i.lock,
	} {
		if err := step(ctx); err != nil {
			return nil, i.explain(err)
		}
	}
	i.options.Progress("comparing", i.file.Len())
	result := new(ImportResult)
	if err := i.compare(ctx, result); err != nil {
		return nil, i.explain(err)
	}
	if !i.options.Apply || result.Differences() == 0 {
		result.Applied = i.options.Apply
		return result, nil
	}
	i.options.Progress("writing", i.file.Len())
	if err := i.apply(ctx, result); err != nil {
		return nil, i.explain(err)
	}
	if err := i.exec(ctx, "COMMIT"); err != nil {
		return nil, i.commitFault(err)
	}
	result.Applied = true
	return result, nil
}

// exec runs statements whose rows nobody wants.
func (i *importing) exec(ctx context.Context, sql string) error {
	return i.session.Query(ctx, sql, importTimeout, func(int, [][]byte) {})
}

// describe asks for the columns of the table, and refuses a file that does not fit.
func (i *importing) describe(ctx context.Context) error {
	i.types = map[string]string{}
	sql := "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = " +
		quoteLiteral(i.table) + "::regclass AND attnum > 0 AND NOT attisdropped"
	err := i.session.Query(ctx, sql, answerTimeout, func(_ int, values [][]byte) {
		i.types[string(values[0])] = string(values[1])
	})
	if err != nil {
		return err
	}
	for column, name := range columnNames() {
		if _, found := i.types[name]; found || column == columnID || column >= firstOptionalColumn && !i.file.used[column] {
			continue
		}
		if column >= firstOptionalColumn {
			return fault(fmt.Sprintf("the table has no column %s, which the file has: add it as `caddy rate-limit schema` shows, or leave it out of the file", name))
		}
		return fault("the table has no column " + name)
	}
	if whole := []string{"smallint", "integer", "bigint"}; slices.Contains(whole, i.types[columnNames()[columnRefill]]) && i.file.fractions.Count > 0 {
		return &ImportError{Count: i.file.fractions.Count, Lines: i.file.fractions.Lines}
	}
	return nil
}

// prepare makes the place for the file: of the table's types and constraints, so
// that what does not fit is refused with its line.
func (i *importing) prepare(ctx context.Context) error {
	known := columnNames()
	var changes []string
	for name := range i.types {
		if column := slices.Index(known[:], name); column <= columnID || !i.file.used[column] {
			changes = append(changes, "ALTER "+pgx.Identifier{name}.Sanitize()+" DROP NOT NULL")
		}
	}
	for _, name := range known[firstOptionalColumn:] {
		changes = append(changes, "ADD COLUMN IF NOT EXISTS "+name+" text")
	}
	changes = append(changes, "ADD "+lineColumn+" int", "ADD "+refillColumn+" double precision")
	// Without the defaults, a constraint on another column would refuse what the
	// table takes; that of the id would use up the table's own numbers.
	if _, found := i.types[known[columnID]]; found {
		changes = append(changes, "ALTER id DROP DEFAULT")
	}
	return i.exec(ctx, "CREATE TEMP TABLE rate_limit_import (LIKE "+i.table+" INCLUDING CONSTRAINTS INCLUDING DEFAULTS) ON COMMIT DROP; "+
		"ALTER TABLE "+importTable+" "+strings.Join(changes, ", "))
}

// send copies the file.
func (i *importing) send(ctx context.Context) error {
	i.options.Progress("sending", 0)
	known := columnNames()
	columns := append(slices.Clone(known[columnTenant:]), lineColumn, refillColumn)
	file := &progressReader{file: i.file, rest: i.file.copied.Bytes(), told: i.options.Progress}
	if _, err := i.session.Conn.CopyFrom(ctx, file, "COPY "+importTable+" ("+strings.Join(columns, ", ")+") FROM STDIN"); err != nil {
		return err
	}
	return i.exec(ctx, "ANALYZE "+importTable)
}

// progressReader reads the file and tells how far it is.
type progressReader struct {
	file *ImportFile
	rest []byte
	told func(step string, rules int)
}

// Read hands on the next part.
func (p *progressReader) Read(to []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	all := p.file.copied.Len()
	p.told("sending", int(int64(p.file.Len())*int64(all-len(p.rest))/int64(all)))
	return n, nil
}

// checkDigits refuses what the type of the column would round.
func (i *importing) checkDigits(ctx context.Context) error {
	sql := "SELECT " + lineColumn + ", " + refillColumn + ", refill_per_second FROM " + importTable +
		" WHERE refill_per_second::text::double precision IS DISTINCT FROM " + refillColumn + " ORDER BY 1"
	var bad badLines
	err := i.session.Query(ctx, sql, importTimeout, func(_ int, values [][]byte) {
		line, _ := strconv.Atoi(string(values[0]))
		bad.add(line, fmt.Sprintf("refill_per_second %s would be stored as %s: the type of the table's column has not enough digits", values[1], values[2]))
	})
	if err == nil && bad.Count > 0 {
		return &ImportError{Count: bad.Count, Lines: bad.Lines}
	}
	return err
}

// lock keeps other writers out until the transaction ends, but no reader.
func (i *importing) lock(ctx context.Context) error {
	if !i.options.Apply {
		return nil
	}
	return i.exec(ctx, "LOCK TABLE "+i.table+" IN SHARE ROW EXCLUSIVE MODE")
}

// columns returns the columns of the file, from one on.
func (i *importing) columns(from int) []string {
	var names []string
	for column, name := range columnNames() {
		if column >= from && i.file.used[column] {
			names = append(names, name)
		}
	}
	return names
}

// rowOf writes the columns that a rule can differ in, as one value.
func (i *importing) rowOf(alias string) string {
	return "ROW(" + alias + strings.Join(i.columns(columnCapacity), ", "+alias) + ")"
}

// apply writes the differences, and makes sure that they were those of result and
// that the table then is as the file has it: a rule or a trigger of the table may
// have made others of them.
func (i *importing) apply(ctx context.Context, result *ImportResult) error {
	var set []string
	for _, name := range i.columns(columnCapacity) {
		set = append(set, name+" = f."+name)
	}
	if strings.HasPrefix(i.types["updated_at"], "timestamp") {
		set = append(set, "updated_at = now()")
	}
	all := strings.Join(i.columns(columnTenant), ", ")
	for _, step := range []struct {
		rows int
		sql  string
	}{
		{result.Deleted, "DELETE FROM " + i.table + " t WHERE " + i.missing()},
		{result.Updated, "UPDATE " + i.table + " t SET " + strings.Join(set, ", ") + " FROM " + importTable + " f WHERE " + samePair +
			" AND " + i.rowOf("t.") + " IS DISTINCT FROM " + i.rowOf("f.")},
		{result.Inserted, "INSERT INTO " + i.table + " (" + all + ") SELECT " + all + " FROM " + importTable + " f WHERE " + i.added() + " ORDER BY " + lineColumn},
	} {
		if step.rows == 0 {
			continue // a statement without a row would notify the gateways
		}
		results, err := i.session.Conn.Exec(ctx, step.sql).ReadAll()
		if err != nil {
			return err
		}
		if len(results) != 1 || results[0].CommandTag.RowsAffected() != int64(step.rows) {
			return errOtherChanges
		}
	}
	return i.verify(ctx)
}

// errOtherChanges ends an import whose table makes something else of it.
const errOtherChanges = fault("the table took other changes than those of the file, because of a trigger, a rule or a policy")

// verify looks for a rule of the file that the table does not have as it is there.
// It counts all: with a LIMIT, PostgreSQL might look each of them up by itself.
func (i *importing) verify(ctx context.Context) error {
	sql := "SELECT count(*) FROM " + importTable + " f WHERE NOT EXISTS (SELECT FROM " + i.table + " t WHERE " + samePair +
		" AND " + i.rowOf("t.") + " IS NOT DISTINCT FROM " + i.rowOf("f.") + ")"
	found := ""
	err := i.session.Query(ctx, sql, importTimeout, func(_ int, values [][]byte) { found = string(values[0]) })
	if err == nil && found != "0" {
		return errOtherChanges
	}
	return err
}

// missing and added are what holds for rows of the table that the file does not
// name, and for those of the file that the table does not have.
func (i *importing) missing() string {
	return "NOT EXISTS (SELECT FROM " + importTable + " f WHERE " + samePair + ")"
}

func (i *importing) added() string {
	return "NOT EXISTS (SELECT FROM " + i.table + " t WHERE " + samePair + ")"
}
