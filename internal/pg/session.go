package pg

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
	// closeTimeout bounds the good-bye to the server.
	closeTimeout = time.Second
)

// rowsPerCheck is after how many rows a query is seen to make progress.
const rowsPerCheck = 256

// Session is one connection to PostgreSQL. It speaks the simple protocol only,
// which every pooler passes on. It is for one goroutine.
type Session struct {
	// Conn is the connection.
	Conn *pgconn.PgConn
	// Patience is how long to wait for what only looks at the catalog.
	Patience time.Duration

	// sockets are what Close may have to cut: pgconn goes on with a connection
	// in the background, for up to 15 seconds, after an operation on it failed.
	mu      sync.Mutex
	sockets []net.Conn
	life    context.Context
	end     context.CancelFunc
}

// Dialing says how to open a session.
type Dialing struct {
	// Address is read anew for each session.
	Address Address
	// Refresh is how often the session's work is done. Where that is often, the
	// session is less patient, so that one that hangs does not put off the next.
	Refresh time.Duration
	// Notify, where it is not nil, is called for each notification that arrives
	// during an operation on the session.
	Notify func()
}

// Connect opens a session.
func (d Dialing) Connect(ctx context.Context) (*Session, error) {
	config, err := d.Address.Config()
	if err != nil {
		return nil, Error("the address of the database: " + err.Error())
	}
	s := &Session{Patience: min(max(d.Refresh/4, minPatience), maxPatience)}
	s.life, s.end = context.WithCancel(context.Background())
	config.ConnectTimeout = s.Patience
	config.DialFunc = s.dial
	config.RuntimeParams["client_encoding"] = "UTF8"
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "caddy_rate_limit"
	}
	if d.Notify != nil {
		config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { d.Notify() }
	}
	ctx, cancel := context.WithTimeout(ctx, s.Patience*time.Duration(1+len(config.Fallbacks)))
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		s.cut()
		return nil, err
	}
	s.Conn = conn
	return s, nil
}

func (s *Session) dial(ctx context.Context, network, address string) (net.Conn, error) {
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

// Close says good-bye and waits until nothing of the session is left.
func (s *Session) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.Conn.Close(ctx)
	select {
	case <-s.Conn.CleanupDone():
	case <-ctx.Done():
	}
	s.cut()
	<-s.Conn.CleanupDone()
}

// cut closes every socket of the session and opens no more.
func (s *Session) cut() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, socket := range s.sockets {
		_ = socket.Close()
	}
}

// Query runs sql, which may be several statements, and hands each row to each.
// The values are valid until each returns. It fails where the server makes no
// progress, a result or many rows, for the time given. Only without an error have all rows been seen.
func (s *Session) Query(ctx context.Context, sql string, patience time.Duration, each func(result int, values [][]byte)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(patience, func() { cancel(ErrSlow) })
	defer timer.Stop()

	results := s.Conn.Exec(ctx, sql)
	for result := 0; results.NextResult(); result++ {
		timer.Reset(patience)
		rows := results.ResultReader()
		for seen := 1; rows.NextRow(); seen++ {
			each(result, rows.Values())
			if seen%rowsPerCheck == 0 {
				timer.Reset(patience)
			}
		}
	}
	err := results.Close()
	if err != nil && context.Cause(ctx) == ErrSlow { //nolint:errorlint // a cause is never wrapped
		return ErrSlow
	}
	return err
}

// Columns runs sql, which looks at the catalog only, and returns the names of the
// columns of its last statement. Each is handed the rows of all. It fails where
// that takes longer than the time given.
func (s *Session) Columns(ctx context.Context, sql string, patience time.Duration, each func(values [][]byte)) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var names []string
	results := s.Conn.Exec(ctx, sql)
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
