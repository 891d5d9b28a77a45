package ratelimit

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/limit"
)

// emitter is the part of Caddy's app `events` that is needed here.
type emitter interface {
	Emit(ctx caddy.Context, name string, data map[string]any) caddy.Event
}

// happening is an event that waits for its subscribers.
type happening struct {
	name   string
	origin *caddy.Context // of the module that tells it
	data   map[string]any
}

// eventQueue emits events of refusals and of changes of state. Subscribers run
// inside Emit and may take their time, which no request, no Redis and no rule
// may wait for: so there is one event for each bucket and second at most, and
// what does not fit into a queue is dropped and counted. Changes of state are
// few and have a queue of their own, which goes first: a flood of refusals does
// not hide why they are refused.
type eventQueue struct {
	events   emitter
	logger   *zap.Logger
	now      func() time.Time
	began    time.Time
	seed     maphash.Seed
	last     [eventSlots]atomic.Int64 // when the latest event of a slot was, in ns since began
	refusals chan happening
	changes  chan happening
	dropped  atomic.Int64
	ready    *readiness
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

// provisionEvents finds who is told of refusals and changes.
func (a *App) provisionEvents(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading the app events: %w", err)
	}
	app := events.(*caddyevents.App)
	a.origin = &ctx
	a.events = newEventQueue(app, a.logger, time.Now)
	if err := app.On("started", a.events.ready); err != nil {
		return fmt.Errorf("subscribing to the start of all apps: %w", err)
	}
	return nil
}

// readiness is told when all apps have started. Requests may come before, and
// then nobody may ask who has subscribed, because the app events still writes
// that down.
type readiness struct {
	once sync.Once
	is   chan struct{} // closed
}

// Handle notes it.
func (r *readiness) Handle(context.Context, caddy.Event) error {
	r.once.Do(func() { close(r.is) })
	return nil
}

// yet reports whether it was told.
func (r *readiness) yet() bool {
	select {
	case <-r.is:
		return true
	default:
		return false
	}
}

func newEventQueue(events emitter, logger *zap.Logger, now func() time.Time) *eventQueue {
	return &eventQueue{
		events:   events,
		logger:   logger,
		now:      now,
		began:    now().Add(-eventInterval), // a slot that was never used is due
		seed:     maphash.MakeSeed(),
		refusals: make(chan happening, eventQueueLength),
		changes:  make(chan happening, eventQueueLength),
		ready:    &readiness{is: make(chan struct{})},
	}
}

// wanted reports whether anybody would see an event of a refusal, as far as that
// is known: what comes before all apps have started is kept until they have.
// An app events that cannot tell, as before Caddy 2.11, may have subscribers.
func (q *eventQueue) wanted() bool {
	asked, tells := q.events.(interface{ ShouldEmit(name string) bool })
	return !q.ready.yet() || !tells || asked.ShouldEmit(exceededEvent)
}

// offer queues the event of a refusal by the bucket. It never waits.
func (q *eventQueue) offer(key limit.Key, said exceeded) {
	if q.due(key) {
		q.queue(q.refusals, happening{name: exceededEvent, origin: said.origin, data: said.data()})
	}
}

// tell queues the event of a change. It never waits. Before all apps have
// started, it is kept until they have.
func (q *eventQueue) tell(change happening) { q.queue(q.changes, change) }

func (q *eventQueue) queue(to chan happening, what happening) {
	select {
	case to <- what:
	default:
		q.dropped.Add(1)
		countDroppedEvent(what.name)
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
		select {
		case <-q.ready.is:
			q.work(ctx)
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		timeout := time.NewTimer(eventStopTimeout)
		defer timeout.Stop()
		select {
		case <-ended:
		case <-timeout.C:
			q.logger.Warn("a subscriber of our events does not end, nobody waits for it")
		}
	}
}

// work emits events until ctx ends, changes of state before refusals.
func (q *eventQueue) work(ctx context.Context) {
	for {
		select {
		case change := <-q.changes:
			q.emit(ctx, &change)
			continue
		default:
		}
		select {
		case change := <-q.changes:
			q.emit(ctx, &change)
		case refusal := <-q.refusals:
			q.emit(ctx, &refusal)
		case <-ctx.Done():
			return
		}
	}
}

// emit hands the event to its subscribers, as one of the module that tells it.
func (q *eventQueue) emit(ctx context.Context, what *happening) {
	if ctx.Err() != nil {
		return // both were ready, and the stop counts
	}
	origin := *what.origin
	origin.Context = ctx
	q.events.Emit(origin, what.name, what.data)
	if dropped := q.dropped.Swap(0); dropped > 0 {
		q.logger.Warn("events were dropped: their subscriber takes longer than they come", zap.Int64("dropped", dropped))
	}
}

// Interface guards
var (
	_ emitter             = (*caddyevents.App)(nil)
	_ caddyevents.Handler = (*readiness)(nil)
)
