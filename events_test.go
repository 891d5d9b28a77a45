package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/limit"
)

// subscriber stands for Caddy's app `events`. It holds every event until it is
// let go, or its context ends.
type subscriber struct {
	none  bool
	hold  chan struct{} // nil: let go at once
	deaf  bool          // whether it does not see the end of its context
	begun atomic.Int64

	mu    sync.Mutex
	seen  []map[string]any
	names []string
}

func (s *subscriber) ShouldEmit(name string) bool { return !s.none && name == "rate_limit_exceeded" }

func (s *subscriber) Emit(ctx caddy.Context, name string, data map[string]any) caddy.Event {
	s.begun.Add(1)
	if s.hold != nil {
		done := ctx.Done()
		if s.deaf {
			done = nil
		}
		select {
		case <-s.hold:
		case <-done:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.names = append(s.seen, data), append(s.names, name)
	return caddy.Event{}
}

func (s *subscriber) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// timepiece is a clock that tests set.
type timepiece struct{ at atomic.Int64 }

func (c *timepiece) now() time.Time { return time.Unix(1_785_000_000, c.at.Load()) }

func (c *timepiece) advance(d time.Duration) { c.at.Add(int64(d)) }

func testQueue(s *subscriber) (*eventQueue, *timepiece, *observer.ObservedLogs) {
	core, logs := observer.New(zap.InfoLevel)
	c := new(timepiece)
	q := newEventQueue(s, zap.New(core), c.now)
	_ = q.ready.Handle(context.Background(), caddy.Event{})
	return q, c, logs
}

func origin() *caddy.Context { return &caddy.Context{Context: context.Background()} }

func bucketKey(tenant string) limit.Key { return limit.Key{Tenant: tenant, Route: "a"} }

func TestO4OneEventPerBucketAndSecond(t *testing.T) {
	s := new(subscriber)
	q, c, _ := testQueue(s)
	for range 10 { // 10 steps of 100 ms
		for range 10 {
			q.offer(bucketKey("t1"), exceeded{origin: origin()})
		}
		c.advance(100 * time.Millisecond)
	}
	require.Len(t, q.refusals, 1, "all within one second")
	for range 3 {
		q.offer(bucketKey("t1"), exceeded{origin: origin()})
	}
	require.Len(t, q.refusals, 2, "the next second has one event more")
	q.offer(bucketKey("t2"), exceeded{origin: origin()})
	require.Len(t, q.refusals, 3, "another bucket has its own")
}

func TestO4QueueIsBounded(t *testing.T) {
	s := &subscriber{hold: make(chan struct{})}
	q, _, logs := testQueue(s)
	stop := q.start()
	q.offer(bucketKey("first"), exceeded{origin: origin()})
	require.Eventually(t, func() bool { return s.begun.Load() == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	for i := range 1000 {
		q.offer(bucketKey(fmt.Sprintf("t%d", i)), exceeded{origin: origin()})
	}
	require.Less(t, time.Since(began), 500*time.Millisecond, "nobody waits for the subscriber")
	require.Len(t, q.refusals, 64)
	require.Positive(t, q.dropped.Load())
	close(s.hold)
	require.Eventually(t, func() bool { return s.count() == 65 }, 10*time.Second, time.Millisecond)
	stop()
	require.Equal(t, 1, logs.FilterMessageSnippet("events were dropped").Len())
}

func TestEventStop(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := &subscriber{hold: make(chan struct{})}
	q, _, _ := testQueue(s)
	stop := q.start()
	q.offer(bucketKey("t1"), exceeded{origin: origin()})
	require.Eventually(t, func() bool { return s.begun.Load() == 1 }, 10*time.Second, time.Millisecond)
	stop()
	require.Equal(t, 1, s.count(), "the subscriber saw the end of its context")
	q.offer(bucketKey("t2"), exceeded{origin: origin()}) // a request that outlived its config
	require.Len(t, q.refusals, 1)
}

func TestEventStopDoesNotWaitForEver(t *testing.T) {
	s := &subscriber{hold: make(chan struct{}), deaf: true}
	defer close(s.hold)
	q, _, logs := testQueue(s)
	stop := q.start()
	q.offer(bucketKey("t1"), exceeded{origin: origin()})
	require.Eventually(t, func() bool { return s.begun.Load() == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	stop()
	require.Less(t, time.Since(began), 10*time.Second)
	require.Equal(t, 1, logs.FilterMessageSnippet("did not finish in time").Len())
}

func TestEventWithoutSubscriber(t *testing.T) {
	q, _, _ := testQueue(&subscriber{none: true})
	require.False(t, q.wanted())
	q, _, _ = testQueue(new(subscriber))
	require.True(t, q.wanted())
	q = newEventQueue(&subscriber{none: true}, zap.NewNop(), time.Now)
	require.True(t, q.wanted(), "nobody knows, because not all apps have started")
}

// TestChangeBeforeTheStart keeps the changes that come before all apps have started.
func TestChangeBeforeTheStart(t *testing.T) {
	s := new(subscriber)
	q := newEventQueue(s, zap.NewNop(), time.Now)
	stop := q.start()
	defer stop()
	q.tell(happening{name: rulesLoadedEvent, origin: origin()})
	require.Zero(t, s.count())
	require.NoError(t, q.ready.Handle(t.Context(), caddy.Event{}))
	require.NoError(t, q.ready.Handle(t.Context(), caddy.Event{}), "a second time does no harm")
	require.Eventually(t, func() bool { return s.count() == 1 }, 10*time.Second, time.Millisecond)
}

// TestO4FloodDoesNotHideAChange has a slow subscriber and a flood of refusals. The
// change goes first, and its queue is bounded, too.
func TestO4FloodDoesNotHideAChange(t *testing.T) {
	s := &subscriber{hold: make(chan struct{})}
	q, _, _ := testQueue(s)
	stop := q.start()
	defer stop()
	for i := range 200 {
		q.offer(bucketKey(fmt.Sprintf("t%d", i)), exceeded{origin: origin()})
	}
	require.Eventually(t, func() bool { return s.begun.Load() == 1 }, 10*time.Second, time.Millisecond)
	began := time.Now()
	for range 200 {
		q.tell(happening{name: breakerOpenedEvent, origin: origin()})
	}
	require.Less(t, time.Since(began), 500*time.Millisecond, "nobody waits for the subscriber")
	require.Len(t, q.changes, 64)
	close(s.hold)
	require.Eventually(t, func() bool { return s.count() >= 65 }, 10*time.Second, time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, exceededEvent, s.names[0], "the subscriber was at it")
	for _, name := range s.names[1:65] {
		require.Equal(t, breakerOpenedEvent, name)
	}
}

func TestEventData(t *testing.T) {
	said := exceeded{zone: "log in", route: "log%20in", remoteIP: "10.1.2.3", clientIP: "203.0.113.7", reason: reasonBan, wait: 3 * time.Second}
	require.Equal(t, map[string]any{
		"zone": "log in", "route": "log%20in", "reason": "ban", "remote_ip": "10.1.2.3", "client_ip": "203.0.113.7", "wait": 3 * time.Second,
	}, said.data())
	said.tenant = "shop-a"
	require.Equal(t, "shop-a", said.data()["tenant"])
	said.shadow = true
	require.Equal(t, true, said.data()["shadow"])
	said.wait = limit.Never
	require.NotContains(t, said.data(), "wait", "no wait helps")
}

func TestO4OffersDoNotRace(t *testing.T) {
	s := new(subscriber)
	q, c, _ := testQueue(s)
	var together sync.WaitGroup
	for range 8 {
		together.Go(func() {
			for range 1000 {
				q.offer(bucketKey("t1"), exceeded{origin: origin()})
			}
		})
	}
	together.Wait()
	require.Len(t, q.refusals, 1)
	c.advance(time.Second)
	q.offer(bucketKey("t1"), exceeded{origin: origin()})
	require.Len(t, q.refusals, 2)
}

// TestK13EventsKeepNoBuffer sees that what subscribers get, and may keep, holds no
// more of a request than it tells.
func TestK13EventsKeepNoBuffer(t *testing.T) {
	t.Parallel()
	header := strings.Repeat(" ", 1000) + "shop"
	name := strings.TrimSpace(header)
	said := exceeded{tenant: name, clientIP: name, remoteIP: "192.0.2.1"}
	data := said.data()
	for _, field := range []string{"tenant", "client_ip"} {
		require.Equal(t, "shop", data[field])
		require.NotSame(t, unsafe.StringData(name), unsafe.StringData(data[field].(string)), field)
	}
}
