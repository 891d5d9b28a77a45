package rulecache

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddygate/ratelimit/internal/pg"
)

// fault is an error in words of our own, safe to show.
type fault = pg.Error

const (
	// errPooler ends a listener: a pooler hands out another session each time.
	errPooler = fault("a pooler such as pgbouncer is between, which cannot pass on notifications")
	// errStandby ends a listener: a standby refuses LISTEN.
	errStandby = fault("the server is a standby, which cannot notify")
)

// errUnannounced is why a connection that listens is not enough.
func errUnannounced(channel string) fault {
	return fault(fmt.Sprintf("no trigger tells channel %q of every change of the table: `caddy rate-limit schema` prints the one that does", channel))
}

// redact returns an error of PostgreSQL in words that hold nothing of the DSN. A
// table that is not there is named, with the command that makes it.
func (o Options) redact(err error) fault {
	answer, found := errors.AsType[*pgconn.PgError](err)
	if !found || answer.Code != pg.NoTable {
		return pg.Describe(err)
	}
	table, flag := o.table(), ""
	switch _, last, _ := strings.Cut("."+o.Tenants, "."); {
	case o.Tenants != "" && strings.Contains(answer.Message, last):
		table, flag = o.Tenants, " --tenants "+quoteShell(o.Tenants)
	case table != DefaultTable:
		flag = " --table " + quoteShell(table)
	}
	return fault(fmt.Sprintf("the table %s does not exist: `caddy rate-limit schema%s` prints the SQL that creates it (SQLSTATE %s)", table, flag, pg.NoTable))
}
