package regions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddygate/ratelimit/internal/pg"
	"github.com/caddygate/ratelimit/limit"
)

// Tables are the books in PostgreSQL. One connection is kept and made anew where
// it was lost. It is safe for concurrent use, one call at a time.
type Tables struct {
	address pg.Address
	sql     statements
	tracer  pgx.QueryTracer // what tests set

	turn chan struct{} // holds a token while nobody uses conn
	conn *pgx.Conn
}

// NewTables makes Tables that have not connected yet. Of the options those count
// that say where the tables are. Errors, also of the Tables, hold nothing of the DSN.
func NewTables(o Options) (*Tables, error) {
	t := &Tables{address: o.address(), sql: newStatements(o.Schema), turn: make(chan struct{}, 1)}
	if _, err := t.config(); err != nil {
		return nil, err
	}
	t.turn <- struct{}{}
	return t, nil
}

// config reads the address, and what it names, anew.
func (t *Tables) config() (*pgx.ConnConfig, error) {
	text, err := t.address.Text()
	if err != nil {
		return nil, pg.Error("the address of the database: " + err.Error())
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, "the address of the database: " + pg.ErrUnusable
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // what every pooler passes on
	config.ConnectTimeout = askTimeout
	config.Tracer = t.tracer
	if len(config.Fallbacks) > 0 && config.ValidateConnect == nil {
		// Of several hosts, rules may be read from any, and shares are written.
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddy_rate_limit_regions"
	}
	return config, nil
}

// Close ends the connection. The next call makes it anew.
func (t *Tables) Close() {
	<-t.turn
	t.drop()
	t.turn <- struct{}{}
}

// drop ends the connection. The caller holds the turn.
func (t *Tables) drop() {
	if t.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = t.conn.Close(ctx)
	t.conn = nil
}

// with runs work on the connection, and ends that after an error, whose traces
// nobody has to know then.
func (t *Tables) with(ctx context.Context, work func(*pgx.Conn) error) error {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { t.turn <- struct{}{} }()
	if t.conn == nil || t.conn.IsClosed() {
		if err := t.connect(ctx); err != nil {
			return t.show(err)
		}
	}
	if err := work(t.conn); err != nil {
		t.drop()
		return t.show(err)
	}
	return nil
}

// connect makes the connection. The caller holds the turn.
func (t *Tables) connect(ctx context.Context) error {
	config, err := t.config()
	if err != nil {
		return err
	}
	t.conn, err = pgx.ConnectConfig(ctx, config)
	return err
}

// Announce makes the gateway known, and its region where it is new.
func (t *Tables) Announce(ctx context.Context, g Gateway) error {
	return t.with(ctx, func(conn *pgx.Conn) error {
		var known bool
		err := conn.QueryRow(ctx, t.sql.announce, g.ID, g.Region, g.Acked, g.Valid.Milliseconds()).Scan(&known)
		if err != nil || known {
			return err
		}
		_, err = conn.Exec(ctx, t.sql.region, g.Region)
		var answer *pgconn.PgError
		if errors.As(err, &answer) && answer.Code == notNullViolation {
			return errFull
		}
		return err
	})
}

// notNullViolation is what a region without a slot meets.
const notNullViolation = "23502"

// errFull is why a region cannot join.
var errFull = fmt.Errorf("there are %d regions already, and no more can join: delete one that is gone from rate_limit_region", MaxRegions)

// errNoBooks is why nothing can be read of tables that are there.
var errNoBooks = errors.New("the table rate_limit_region_books has no row: run the SQL of the schema again")

// errNoTables is why nothing can be asked.
var errNoTables = errors.New("the tables of the regions' shares do not exist: the SQL that `caddy rate-limit schema --regions` prints makes them (SQLSTATE " + pg.NoTable + ")")

// show puts an error into words for logs.
func (t *Tables) show(err error) error {
	if errors.Is(err, errFull) || errors.Is(err, errNoBooks) {
		return err
	}
	if answer, found := errors.AsType[*pgconn.PgError](err); found && answer.Code == pg.NoTable {
		return errNoTables
	}
	return pg.Describe(err)
}

// Leave takes the gateway back.
func (t *Tables) Leave(ctx context.Context, id string) error {
	return t.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, t.sql.leave, id)
		return err
	})
}

// View reads the shares of a region in one statement, and so as of one moment.
func (t *Tables) View(ctx context.Context, region string, known int64) (View, error) {
	var view View
	err := t.with(ctx, func(conn *pgx.Conn) error {
		view = View{Shares: map[limit.Key]Share{}}
		rows, err := conn.Query(ctx, t.sql.view, region, known)
		if err != nil {
			return err
		}
		found := false
		var safe, share *int32
		var tenant, route *string
		_, err = pgx.ForEachRow(rows, []any{&view.Version, &safe, &tenant, &route, &share}, func() error {
			found = true
			if safe != nil {
				view.Safe = Share(*safe)
			}
			if tenant != nil && route != nil {
				part := Share(0)
				if share != nil {
					part = Share(*share)
				}
				view.Shares[limit.Key{Tenant: *tenant, Route: *route}] = part
			}
			return nil
		})
		if err == nil && !found {
			return errNoBooks
		}
		return err
	})
	view.Unchanged = err == nil && view.Version == known
	return view, err
}

// Report adds demand to that of a region, in one statement whose rows are in the
// order of their keys.
func (t *Tables) Report(ctx context.Context, region string, demand []Demand) error {
	tenants, routes, units := make([]string, len(demand)), make([]string, len(demand)), make([]float64, len(demand))
	for i, d := range demand {
		tenants[i], routes[i], units[i] = d.Key.Tenant, d.Key.Route, d.Units
	}
	return t.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, t.sql.report, region, tenants, routes, units)
		return err
	})
}

// Interface guards
var (
	_ Reader     = (*Tables)(nil)
	_ Bookkeeper = (*Tables)(nil)
	_ database   = (*Tables)(nil)
)
