package rulecache

import (
	"context"
	"io/fs"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/caddygate/ratelimit/internal/servertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// plainTable is the table of the design, without what may be left out.
const plainTable = `CREATE TABLE rate_limit_rule (
  id BIGSERIAL PRIMARY KEY,
  tenant_id VARCHAR(64) NOT NULL, route_id VARCHAR(64) NOT NULL,
  capacity INT NOT NULL CHECK (capacity > 0),
  refill_per_second INT NOT NULL CHECK (refill_per_second > 0),
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
  UNIQUE (tenant_id, route_id))`

// looseTable lets every kind of nonsense in.
const looseTable = `CREATE TABLE rate_limit_rule (
  id BIGSERIAL PRIMARY KEY, tenant_id TEXT, route_id TEXT, capacity NUMERIC, refill_per_second DOUBLE PRECISION,
  algorithm TEXT, mode TEXT, prefetch TEXT, shards INT)`

// insertRule adds a rule for tenant t1 on a route.
const insertRule = `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('t1', $1, $2, 1)`

// updateRule changes the rule of tenant t1 on route a.
const updateRule = `UPDATE rate_limit_rule SET capacity = $1 WHERE tenant_id = 't1' AND route_id = 'a'`

// withTable starts a PostgreSQL that has the schema's table and a rule of
// capacity 2 for tenant t1 on route a.
func withTable(t testing.TB) *servertest.PostgresServer {
	t.Helper()
	server := servertest.Postgres(t)
	server.Exec(t, Schema("", ""))
	server.Exec(t, insertRule, "a", 2)
	return server
}

// recorder is an observer that keeps what it is told.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) observe(event Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *recorder) count(kind EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	for _, event := range r.events {
		if event.Kind == kind {
			count++
		}
	}
	return count
}

// fixture is a started Source and who observes it.
type fixture struct {
	*Source
	*recorder
	stop func()
}

// begin starts a Source that stops with the test.
func begin(t testing.TB, dsn string, settings Settings) *fixture {
	t.Helper()
	return beginWith(t, Options{DSN: dsn}, settings)
}

// beginWith is begin with other options. Copies are stored at once, and a machine
// that is busy proves nothing.
func beginWith(t testing.TB, options Options, settings Settings) *fixture {
	t.Helper()
	source, err := NewSource(options)
	require.NoError(t, err)
	source.poller.timing.storeSpread, source.poller.timing.proof = 0, 5*time.Second
	f := &fixture{Source: source, recorder: new(recorder)}
	settings.Observe = f.observe
	require.NoError(t, settings.Validate())
	f.stop = source.Start(settings)
	t.Cleanup(func() {
		f.stop()
		require.NoError(t, source.Destruct())
	})
	return f
}

// capacity returns the capacity in force for tenant t1 on a route, 0 for none.
func (f *fixture) capacity(route string) int64 {
	rule, _ := f.Snapshot().Get("t1", route)
	return rule.Capacity
}

// loaded waits for the first load.
func (f *fixture) loaded(t testing.TB) *fixture {
	t.Helper()
	within(t, 10*time.Second, "the first load", func() bool { return f.Status().LastSuccess != time.Time{} })
	return f
}

// listening waits for the listening connection.
func (f *fixture) listening(t testing.TB) *fixture {
	t.Helper()
	within(t, 10*time.Second, "listening", func() bool { return f.Status().Listening })
	return f.loaded(t)
}

// within fails the test unless a condition holds before the time is up.
func within(t testing.TB, most time.Duration, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, most, 2*time.Millisecond, what)
}

// memoryStore is a Store in memory.
type memoryStore struct {
	mu    sync.Mutex
	text  []byte
	saves int
	loads int
	err   error
	block chan struct{} // where it is not nil, both methods wait for it
}

func (s *memoryStore) Load(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	s.loads++
	text, err, block := slices.Clone(s.text), s.err, s.block
	s.mu.Unlock()
	if err == nil && text == nil {
		err = fs.ErrNotExist
	}
	return text, hold(ctx, block, err)
}

func (s *memoryStore) Save(ctx context.Context, text []byte) error {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if err := hold(ctx, block, nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if s.err == nil {
		s.text = slices.Clone(text)
	}
	return s.err
}

func (s *memoryStore) stats() (loads, saves int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads, s.saves
}

func hold(ctx context.Context, block chan struct{}, err error) error {
	if block == nil {
		return err
	}
	select {
	case <-block:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
