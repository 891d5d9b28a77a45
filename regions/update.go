package regions

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Update runs rebalance, where there is anything to do, in a transaction of its
// own, under an advisory lock that only one of them holds. PostgreSQL ends the
// transaction of one that does not go on, of a machine that lost its power say, so
// that the others do not wait for its connection to die. What is acknowledged is read after the lock was taken,
// and so after every change of before was to be seen by whoever reads: a gateway
// that is not among those read has yet to read, and then reads those changes.
func (t *Tables) Update(ctx context.Context, every time.Duration, rebalance func(*Books) Changes) (ran bool, err error) {
	err = t.with(ctx, func(conn *pgx.Conn) error {
		ran = false
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, t.sql.patience); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, t.sql.lock, every.Seconds()).Scan(&ran); err != nil || !ran {
				return err
			}
			u := update{tx: tx, sql: &t.sql}
			books, err := u.open(ctx, every)
			if err != nil {
				return err
			}
			return u.save(ctx, books, rebalance(books))
		})
	})
	return ran && err == nil, err
}

// update is one transaction of Update.
type update struct {
	tx  pgx.Tx
	sql *statements
}

// open reads the books.
func (u *update) open(ctx context.Context, every time.Duration) (*Books, error) {
	books := &Books{Acked: map[string]int64{}, Gateways: map[string]int{}}
	if err := u.tx.QueryRow(ctx, u.sql.open, every.Seconds()).Scan(&books.Version, &books.Next, &books.Due); err != nil {
		return nil, err
	}
	if _, err := u.tx.Exec(ctx, u.sql.prune); err != nil {
		return nil, err
	}
	var region string
	var acked int64
	var alive int
	err := u.each(ctx, query{u.sql.acked, nil, []any{&region, &acked, &alive}}, func() {
		books.Acked[region], books.Gateways[region] = acked, alive
	})
	if err != nil {
		return nil, err
	}
	var known Region
	err = u.each(ctx, query{u.sql.regions, nil, []any{&known.Name, &known.Safe}}, func() { books.Regions = append(books.Regions, known) })
	if err != nil {
		return nil, err
	}
	if err := u.limits(ctx, books); err != nil || !books.Due {
		return books, err
	}
	return books, u.demands(ctx, books)
}

// limits reads the rows: all of them, or those that are under way.
func (u *update) limits(ctx context.Context, books *Books) error {
	var row Limit
	var regions []string
	var targets, shares, held []int32
	into := []any{&row.Key.Tenant, &row.Key.Route, &row.Version, &regions, &targets, &shares, &held}
	return u.each(ctx, query{u.sql.limits, []any{books.Due}, into}, func() {
		row.Portions = make([]Portion, len(regions))
		for i := range regions {
			row.Portions[i] = Portion{Region: regions[i], Target: Share(targets[i]), Share: Share(shares[i]), Held: Share(held[i])}
		}
		books.Limits = append(books.Limits, row)
	})
}

// demands reads the demand, and lets it count half from then on. Reports wait for
// the end of the transaction, so that none of them is lost.
func (u *update) demands(ctx context.Context, books *Books) error {
	for _, sql := range []string{u.sql.freeze, u.sql.bounded} {
		if _, err := u.tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	var d Demand
	err := u.each(ctx, query{u.sql.demand, nil, []any{&d.Region, &d.Key.Tenant, &d.Key.Route, &d.Units}}, func() {
		books.Demands = append(books.Demands, d)
	})
	if err != nil {
		return err
	}
	for _, sql := range []string{u.sql.decay, u.sql.forget} {
		if _, err := u.tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// query is one that returns rows, and where their columns go.
type query struct {
	sql       string
	arguments []any
	into      []any
}

func (u *update) each(ctx context.Context, q query, row func()) error {
	rows, err := u.tx.Query(ctx, q.sql, q.arguments...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, q.into, func() error { row(); return nil })
	return err
}

// save writes the changes.
func (u *update) save(ctx context.Context, books *Books, made Changes) error {
	for _, key := range made.Deleted {
		if _, err := u.tx.Exec(ctx, u.sql.remove, key.Tenant, key.Route); err != nil {
			return err
		}
	}
	for i := range made.Limits {
		if err := u.put(ctx, &made.Limits[i]); err != nil {
			return fmt.Errorf("writing the shares of a limit: %w", err)
		}
	}
	if made.Version == books.Version && !made.Reckoned {
		return nil
	}
	_, err := u.tx.Exec(ctx, u.sql.close, made.Version, made.Reckoned)
	return err
}

func (u *update) put(ctx context.Context, row *Limit) error {
	n := len(row.Portions)
	regions, targets, shares, held := make([]string, n), make([]int32, n), make([]int32, n), make([]int32, n)
	for i, p := range row.Portions {
		regions[i], targets[i], shares[i], held[i] = p.Region, int32(p.Target), int32(p.Share), int32(p.Held)
	}
	_, err := u.tx.Exec(ctx, u.sql.save, row.Key.Tenant, row.Key.Route, row.Version, regions, targets, shares, held)
	return err
}
