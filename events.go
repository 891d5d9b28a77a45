package ratelimit

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// exceeded is what the event `rate_limit_exceeded` tells of a refusal.
type exceeded struct {
	origin   *caddy.Context // of the handler that refused
	zone     string
	route    string
	tenant   string // blank unless log_key asks for it
	remoteIP string
	wait     time.Duration
	shadow   bool // whether the request passed all the same
}

func (e *exceeded) data() map[string]any {
	data := map[string]any{"zone": e.zone, "route": e.route, "wait": e.wait, "remote_ip": e.remoteIP}
	if e.tenant != "" {
		data["tenant"] = e.tenant
	}
	if e.shadow {
		data["shadow"] = true
	}
	return data
}

// emitter is the part of Caddy's app `events` that is needed here.
type emitter interface {
	ShouldEmit(name string) bool
	Emit(ctx caddy.Context, name string, data map[string]any) caddy.Event
}

// eventQueue emits events of refusals. Subscribers run inside Emit and may take
// their time, which no refused request may wait for: so there is one event for
// each bucket and second at most, and what does not fit into the queue is
// dropped and counted.
type eventQueue struct {
	events  emitter
	logger  *zap.Logger
	now     func() time.Time
	began   time.Time
	seed    maphash.Seed
	last    [eventSlots]atomic.Int64 // when the latest event of a slot was, in ns since began
	queue   chan exceeded
	dropped atomic.Int64
	ready   atomic.Bool // all apps have started
}

const (
	exceededEvent = "rate_limit_exceeded"

	// eventSlots bounds the memory. Of two buckets that fall into one slot, one
	// has an event in a second.
	eventSlots = 4096

	eventQueueLength = 64
	eventInterval    = time.Second

	// eventStopTimeout is how long a stop waits for a subscriber.
	eventStopTimeout = time.Second
)

// provisionEvents finds who is told of refusals.
func (a *App) provisionEvents(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the app events: %w", err)
	}
	app := events.(*caddyevents.App)
	a.events = newEventQueue(app, a.logger, time.Now)
	if err := app.On("started", readiness{&a.events.ready}); err != nil {
		return fmt.Errorf("subscribing to the start of all apps: %w", err)
	}
	return nil
}

// readiness is told when all apps have started. Requests may come before, and
// then nobody may ask who has subscribed, because the app events still writes
// that down.
type readiness struct{ ready *atomic.Bool }

// Handle notes it.
func (r readiness) Handle(context.Context, caddy.Event) error {
	r.ready.Store(true)
	return nil
}

func newEventQueue(events emitter, logger *zap.Logger, now func() time.Time) *eventQueue {
	return &eventQueue{
		events: events,
		logger: logger,
		now:    now,
		began:  now().Add(-eventInterval), // a slot that was never used is due
		seed:   maphash.MakeSeed(),
		queue:  make(chan exceeded, eventQueueLength),
	}
}

// wanted reports whether anybody would see an event.
func (q *eventQueue) wanted() bool { return q.ready.Load() && q.events.ShouldEmit(exceededEvent) }

// offer queues the event of a refusal by the bucket. It never waits.
func (q *eventQueue) offer(key limit.Key, said exceeded) {
	if !q.due(key) {
		return
	}
	select {
	case q.queue <- said:
	default:
		q.dropped.Add(1)
	}
}

// due reports whether the bucket had no event in the last second, and notes
// that it has one now.
func (q *eventQueue) due(key limit.Key) bool {
	slot := &q.last[maphash.Comparable(q.seed, key)%eventSlots]
	at := int64(q.now().Sub(q.began))
	last := slot.Load()
	return at-last >= int64(eventInterval) && slot.CompareAndSwap(last, at)
}

// start emits what is offered, until stop is called. The stop waits for a
// subscriber that is at work, for a second at most, and tells it by its context.
func (q *eventQueue) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case said := <-q.queue:
				q.emit(ctx, &said)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		timeout := time.NewTimer(eventStopTimeout)
		defer timeout.Stop()
		select {
		case <-ended:
		case <-timeout.C:
			q.logger.Warn("a subscriber of the event does not end, nobody waits for it", zap.String("event", exceededEvent))
		}
	}
}

// emit hands the event to its subscribers, as one of the handler's.
func (q *eventQueue) emit(ctx context.Context, said *exceeded) {
	if ctx.Err() != nil {
		return // both were ready, and the stop counts
	}
	origin := *said.origin
	origin.Context = ctx
	q.events.Emit(origin, exceededEvent, said.data())
	if dropped := q.dropped.Swap(0); dropped > 0 {
		q.logger.Warn("events were dropped: their subscriber takes longer than they come", zap.String("event", exceededEvent), zap.Int64("dropped", dropped))
	}
}

// Interface guards
var _ emitter = (*caddyevents.App)(nil)
