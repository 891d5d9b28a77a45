package rulecache

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// minPatience and maxPatience bound the wait for what is quick: a connection
	// to each host of the DSN, and a question that only looks at the catalog. It
	// is short where polls are close together, so that a poll that hangs does
	// not put off the next.
	minPatience = 2 * time.Second
	maxPatience = 5 * time.Second
	// answerTimeout bounds the wait for the first row of a query over the table,
	// and from there on for more.
	answerTimeout = 15 * time.Second
	// pingTimeout bounds the answer that shows that a session is alive.
	pingTimeout = time.Second
	// closeTimeout bounds the good-bye to the server.
	closeTimeout = time.Second
)

// rowsPerCheck is after how many rows a query is seen to make progress.
const rowsPerCheck = 256

// session is one connection to PostgreSQL. It speaks the simple protocol only,
// which every pooler passes on.
type session struct {
	conn     *pgconn.PgConn
	patience time.Duration

	// sockets are what close may have to cut: pgconn goes on with a connection
	// in the background, for up to 15 seconds, after an operation on it failed.
	mu      sync.Mutex
	sockets []net.Conn
	life    context.Context
	end     context.CancelFunc
}

// dialing says how to open a session.
type dialing struct {
	config  *pgconn.Config
	refresh time.Duration
	// notify, where it is not nil, is called for each notification that arrives
	// during an operation on the session.
	notify func()
}

// connect opens a session.
func (d dialing) connect(ctx context.Context) (*session, error) {
	s := &session{patience: min(max(d.refresh/4, minPatience), maxPatience)}
	s.life, s.end = context.WithCancel(context.Background())
	config := d.config.Copy()
	config.ConnectTimeout = s.patience
	config.DialFunc = s.dial
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddy_rate_limit"
	}
	if d.notify != nil {
		config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { d.notify() }
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience*time.Duration(1+len(config.Fallbacks)))
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		s.cut()
		return nil, err
	}
	s.conn = conn
	return s, nil
}

func (s *session) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	socket, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		_ = socket.Close()
		return nil, net.ErrClosed
	}
	s.sockets = append(s.sockets, socket)
	return socket, nil
}

// close says good-bye and waits until nothing of the session is left.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.conn.Close(ctx)
	select {
	case <-s.conn.CleanupDone():
	case <-ctx.Done():
	}
	s.cut()
	<-s.conn.CleanupDone()
}

// cut closes every socket of the session and opens no more.
func (s *session) cut() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, socket := range s.sockets {
		_ = socket.Close()
	}
}

// query runs sql, which may be several statements, and hands each row to each.
// The values are valid until each returns. It fails where the server makes no
// progress for the time given. Only without an error have all rows been seen.
func (s *session) query(ctx context.Context, sql string, patience time.Duration, each func(result int, values [][]byte)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(patience, func() { cancel(errSlow) })
	defer timer.Stop()

	results := s.conn.Exec(ctx, sql)
	for result := 0; results.NextResult(); result++ {
		rows := results.ResultReader()
		for seen := 1; rows.NextRow(); seen++ {
			each(result, rows.Values())
			if seen%rowsPerCheck == 0 {
				timer.Reset(patience)
			}
		}
	}
	err := results.Close()
	if err != nil && context.Cause(ctx) == errSlow { //nolint:errorlint // a cause is never wrapped
		return errSlow
	}
	return err
}

// columns returns the names of the columns of the last of the statements in sql.
func (s *session) columns(ctx context.Context, sql string, each func(values [][]byte)) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	var names []string
	results := s.conn.Exec(ctx, sql)
	for results.NextResult() {
		rows := results.ResultReader()
		names = names[:0]
		for _, field := range rows.FieldDescriptions() {
			names = append(names, field.Name)
		}
		for rows.NextRow() {
			each(rows.Values())
		}
	}
	return names, results.Close()
}
