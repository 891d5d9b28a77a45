package ratelimit

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
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
// may wait for: so there is one event for each bucket and second at most, of no
// more than hot.Buckets buckets, and what does not fit into a queue is dropped and
// counted. Changes of state are few and have a queue of their own, which goes first:
// a flood of refusals does not hide why they are refused.
type eventQueue struct {
	events   emitter
	logger   *zap.Logger
	now      func() time.Time
	sampler  *hot.Sampler[struct{}]
	refusals chan happening
	changes  chan happening
	dropped  atomic.Int64
	ready    *readiness
}

const (
	exceededEvent = "rate_limit_exceeded"

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
		sampler:  hot.NewSampler(eventInterval, func(said struct{}) struct{} { return said }),
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
	if _, due, _ := q.sampler.Note(q.now(), key, struct{}{}); due {
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
			q.logger.Warn("an event subscriber did not finish in time, so it is left behind")
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

// The events of changes of state, as Caddy's app `events` and the metric
// state_changes_total name them.
const (
	breakerOpenedEvent  = "rate_limit_breaker_opened"
	breakerClosedEvent  = "rate_limit_breaker_closed"
	redisUnreachedEvent = "rate_limit_redis_unreached"
	redisReachedEvent   = "rate_limit_redis_reached"
	redisUnfitEvent     = "rate_limit_redis_unfit"
	redisMastersEvent   = "rate_limit_redis_masters_changed"

	rulesLoadedEvent        = "rate_limit_rules_loaded"
	rulesFailedEvent        = "rate_limit_rules_failed"
	rulesRecoveredEvent     = "rate_limit_rules_recovered"
	rulesStaleEvent         = "rate_limit_rules_stale"
	rulesStoredUsedEvent    = "rate_limit_rules_stored_used"
	rulesStoreFailedEvent   = "rate_limit_rules_store_failed"
	rulesListeningEvent     = "rate_limit_rules_listening"
	rulesListeningLostEvent = "rate_limit_rules_listening_lost"
	rulesPollOnlyEvent      = "rate_limit_rules_poll_only"
)

// stateEvents are all of them.
func stateEvents() []string {
	return []string{
		breakerOpenedEvent, breakerClosedEvent, redisUnreachedEvent, redisReachedEvent, redisUnfitEvent, redisMastersEvent,
		rulesLoadedEvent, rulesFailedEvent, rulesRecoveredEvent, rulesStaleEvent, rulesStoredUsedEvent,
		rulesStoreFailedEvent, rulesListeningEvent, rulesListeningLostEvent, rulesPollOnlyEvent,
		sharesChangedEvent, sharesFailedEvent, sharesRecoveredEvent, sharesLapsedEvent, sharesUnknownEvent, sharesMovedEvent, sharesStuckEvent,
	}
}

// tellChange counts a change of state and offers its event to subscribers.
func (a *App) tellChange(name string, data map[string]any) {
	countStateChange(name)
	if a.memory != nil {
		a.memory.changes.Add(time.Now(), name, maps.Clone(data)) // subscribers may change theirs
	}
	a.events.tell(happening{name: name, origin: a.origin, data: data})
}

// tellRedis tells of what happened to a Redis.
func (a *App) tellRedis(event redisbucket.Event) {
	data := map[string]any{"node": event.Address}
	name := redisUnfitEvent
	switch event.Kind {
	case redisbucket.BreakerOpened:
		name, data["reason"] = breakerOpenedEvent, event.Detail
	case redisbucket.BreakerClosed:
		name = breakerClosedEvent
	case redisbucket.Unreached:
		name, data["reason"] = redisUnreachedEvent, event.Detail
	case redisbucket.Reached:
		name = redisReachedEvent
	case redisbucket.MastersChanged:
		name, data["masters"] = redisMastersEvent, event.Detail
	default:
		data["problem"], data["detail"] = event.Kind.String(), event.Detail
	}
	a.tellChange(name, data)
}

// tellRules tells of what happened to the rules.
func (a *App) tellRules(event rulecache.Event) {
	data := map[string]any{"rules": event.Rules, "rejected": event.Rejected}
	if event.Err != nil {
		data["error"] = event.Err.Error()
	}
	if event.Kind == rulecache.EventLoaded {
		data["took"], data["hash"] = event.Took, a.source.Snapshot().Hash()
	}
	if name := rulesEventName(event.Kind); name != "" {
		a.tellChange(name, data)
	}
}

func rulesEventName(kind rulecache.EventKind) string {
	switch kind {
	case rulecache.EventLoaded:
		return rulesLoadedEvent
	case rulecache.EventFailed:
		return rulesFailedEvent
	case rulecache.EventRecovered:
		return rulesRecoveredEvent
	case rulecache.EventStoredUsed:
		return rulesStoredUsedEvent
	case rulecache.EventStoreFailed, rulecache.EventStoredUnusable:
		return rulesStoreFailedEvent
	case rulecache.EventListening:
		return rulesListeningEvent
	case rulecache.EventListenLost:
		return rulesListeningLostEvent
	case rulecache.EventPollOnly:
		return rulesPollOnlyEvent
	default:
		return ""
	}
}

// exceeded is what the event `rate_limit_exceeded` tells of a refusal.
type exceeded struct {
	origin   *caddy.Context // of the handler that refused
	zone     string
	route    string
	tenant   string // blank unless log_key asks for it
	remoteIP string
	clientIP string // behind trusted proxies another than remoteIP
	reason   string
	wait     time.Duration
	shadow   bool // whether the request passed all the same
}

// data is what subscribers get. What may be a part of a request's buffer is copied,
// because they may keep it.
func (e *exceeded) data() map[string]any {
	data := map[string]any{"zone": e.zone, "route": e.route, "reason": e.reason, "remote_ip": e.remoteIP, "client_ip": strings.Clone(e.clientIP)}
	if e.wait != limit.Never {
		data["wait"] = e.wait
	}
	if e.tenant != "" {
		data["tenant"] = strings.Clone(e.tenant)
	}
	if e.shadow {
		data["shadow"] = true
	}
	return data
}

// tellShadows emits the events of the charges that would have refused the
// request if they were enforced.
func (h *Handler) tellShadows(r *http.Request, charges []charge) {
	for i := range charges {
		if charges[i].outcome == outcomeShadow {
			h.emitExceeded(r, &charges[i])
		}
	}
}

func (h *Handler) emitExceeded(r *http.Request, c *charge) {
	if !h.app.events.wanted() {
		return
	}
	said := exceeded{
		origin: &h.ctx, zone: c.zone.name, route: c.zone.route, remoteIP: remoteIP(r), clientIP: clientIP(r),
		reason: c.reason(), wait: c.state.RetryAfter, shadow: c.outcome == outcomeShadow,
	}
	if h.LogKey {
		said.tenant = c.told()
	}
	h.app.events.offer(c.bucket.Key, said)
}

// Interface guards
var (
	_ emitter             = (*caddyevents.App)(nil)
	_ caddyevents.Handler = (*readiness)(nil)
)
