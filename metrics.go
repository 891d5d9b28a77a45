package ratelimit

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
)

// outcome is what became of a request, as the metric tells it.
type outcome uint8

const (
	outcomeUndecided outcome = iota // not counted
	outcomeGranted
	outcomeRefused
	outcomeShadow // would have been refused
	outcomeUnlimited
	outcomeDenied
	outcomeUnauthorized
	outcomeAllowed
	outcomeInvalid // 400
	outcomeLeft    // the client has, before anybody decided
	outcomes       = int(outcomeLeft) + 1
)

var outcomeWords = [outcomes]string{"", "granted", "refused", "shadow", "unlimited", "denied", "unauthorized", "allowed", "invalid", "left"}

// collectors count over the whole life of the process: each config registers
// the same ones in its own registry, so that a reload does not set them back.
type collectors struct {
	requests    *prometheus.CounterVec
	declined    *prometheus.CounterVec
	processTime *prometheus.HistogramVec
	redisErrors *prometheus.CounterVec
	triggered   *prometheus.CounterVec
	changes     *prometheus.CounterVec
	dropped     *prometheus.CounterVec
	unread      *prometheus.CounterVec
	cut         *prometheus.CounterVec
	lost        *prometheus.CounterVec
	banned      *prometheus.CounterVec
}

// list returns all of them.
func (c *collectors) list() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.declined, c.processTime, c.redisErrors, c.triggered, c.changes, c.dropped, c.unread, c.cut, c.lost, c.banned}
}

// begin makes series before they count, so that a first time is an increase from
// 0 and not a series that nobody has seen before.
func (c *collectors) begin() {
	for _, name := range stateEvents() {
		c.changes.WithLabelValues(name)
		c.dropped.WithLabelValues(name)
	}
	c.dropped.WithLabelValues(exceededEvent)
	c.dropped.WithLabelValues(bannedEvent)
	for _, reason := range []string{"timeout", "wait", "connection", "breaker_open"} {
		c.redisErrors.WithLabelValues(reason)
		c.lost.WithLabelValues(reason)
	}
	c.lost.WithLabelValues(lostNotKnown)
	c.lost.WithLabelValues(lostOtherRule)
}

var processCollectors = sync.OnceValue(func() *collectors {
	const namespace, subsystem = "caddy", "rate_limit"
	c := &collectors{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Requests that met a rate limit, by zone (the route), outcome and the source of the decision.",
		}, []string{"zone", "outcome", "source"}),
		declined: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "declined_requests_total",
			Help: "Requests that were refused, by zone and reason: rate, or ban.",
		}, []string{"zone", "reason"}),
		unread: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "charges_unread_total",
			Help: "Answers that did not say what they cost, by zone and reason.",
		}, []string{"zone", "reason"}),
		cut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "charges_cut_total",
			Help: "Tokens that answers cost and a debt had no room for, by zone.",
		}, []string{"zone"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "settlements_lost_total",
			Help: "Requests of which what they took at their start was not settled, by reason.",
		}, []string{"reason"}),
		banned: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "bans_total",
			Help: "Bans that this gateway saw for the first time, by zone.",
		}, []string{"zone"}),
		processTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "process_time_seconds",
			Help:    "Seconds that a decision took, by zone.",
			Buckets: decisionBuckets(),
		}, []string{"zone"}),
		redisErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "redis_errors_total",
			Help: "Decisions that Redis could not make and the fallback made, by reason.",
		}, []string{"reason"}),
		triggered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "rules_triggered_total",
			Help: "Signs that the rules may have changed, by the trigger that heard of them.",
		}, []string{"trigger"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "state_changes_total",
			Help: "Changes of state, by the name of their event.",
		}, []string{"event"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "events_dropped_total",
			Help: "Events that nobody saw because their subscribers take longer than they come, by event.",
		}, []string{"event"}),
	}
	c.begin()
	return c
})

// totalOf is the sum of a family of counters.
func totalOf(family *prometheus.CounterVec) int64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(family)
	families, _ := registry.Gather() // counters alone, which are always right
	var total float64
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			total += metric.GetCounter().GetValue()
		}
	}
	return int64(total)
}

// countLost counts a request whose cost is not settled.
func countLost(reason string) { processCollectors().lost.WithLabelValues(reason).Inc() }

func countRedisError(err error) {
	processCollectors().redisErrors.WithLabelValues(redisbucket.Reason(err)).Inc()
}

func countStateChange(event string) { processCollectors().changes.WithLabelValues(event).Inc() }

func countDroppedEvent(event string) { processCollectors().dropped.WithLabelValues(event).Inc() }

// metrics is a config's view of the collectors: one routeMetrics for each route,
// which all configs that have the route share.
type metrics struct {
	mu     sync.Mutex
	redis  bool // whether others than this gateway may decide
	routes map[string]*routeMetrics
}

// registerMetrics registers the collectors and the state of the app.
func registerMetrics(registry *prometheus.Registry, app *App) (*metrics, error) {
	m := &metrics{redis: app.Redis != nil, routes: map[string]*routeMetrics{}}
	if registry == nil {
		return m, nil // a context made by hand, as in tests
	}
	var errs []error
	for _, collector := range append(processCollectors().list(), stateCollector{app}) {
		errs = append(errs, registry.Register(collector))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

// route returns the metrics of one route, the same for all its handlers.
func (m *metrics) route(name string) *routeMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.routes[name]
	if !ok {
		known = takeRoute(name)
		known.begin(m.redis)
		m.routes[name] = known
	}
	return known
}

// release gives the routes back. The series of those that no other config has go.
func (m *metrics) release() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, route := range m.routes {
		route.release()
	}
	clear(m.routes)
	return nil
}

// routeMetrics are the series of one route. A counter is looked up by its labels
// once and kept, because the look-up costs more than a decision in memory. A nil
// pointer counts nothing.
type routeMetrics struct {
	name        string
	processTime prometheus.Observer
	declined    [2]atomic.Pointer[prometheus.Counter] // by rate, and by another reason
	requests    [outcomes][limit.Sources]atomic.Pointer[prometheus.Counter]
	users       int // configs, under usedRoutes.mu; 0: its series are gone
}

// usedRoutes are those of all configs.
var usedRoutes = struct {
	mu     sync.Mutex
	byName map[string]*routeMetrics
}{byName: map[string]*routeMetrics{}}

func takeRoute(name string) *routeMetrics {
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	known, found := usedRoutes.byName[name]
	if !found {
		known = &routeMetrics{
			name:        name,
			processTime: processCollectors().processTime.WithLabelValues(name),
		}
		usedRoutes.byName[name] = known
	}
	known.users++
	return known
}

func (m *routeMetrics) release() {
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	delete(usedRoutes.byName, m.name)
	c, labels := processCollectors(), prometheus.Labels{"zone": m.name}
	c.requests.DeletePartialMatch(labels)
	for _, family := range []*prometheus.CounterVec{c.declined, c.unread, c.cut, c.banned} {
		family.DeletePartialMatch(labels)
	}
	c.processTime.DeletePartialMatch(labels)
}

// begin makes the series that the route may come to have, so that a first refusal
// is an increase from 0.
func (m *routeMetrics) begin(redis bool) {
	m.add(processCollectors().declined, 0, reasonRate)
	for what := outcomeUnlimited; int(what) < outcomes; what++ {
		m.counter(what, limit.SourceNone)
	}
	sources := []limit.Source{limit.SourceLocal}
	if redis {
		sources = append(sources, limit.SourceRedis, limit.SourceRemembered, limit.SourcePrefetch)
		m.counter(outcomeRefused, limit.SourceNone) // fallback deny
	}
	for _, source := range sources {
		if source != limit.SourceRemembered { // refusals are
			m.counter(outcomeGranted, source)
		}
		m.counter(outcomeRefused, source)
		m.counter(outcomeShadow, source)
	}
}

// counter returns one of the series, or nil where it is gone: a request may outlive
// the last config that has its route.
func (m *routeMetrics) counter(what outcome, source limit.Source) *prometheus.Counter {
	kept := &m.requests[what][source]
	if counter := kept.Load(); counter != nil {
		return counter
	}
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	if m.users == 0 {
		return nil
	}
	found := processCollectors().requests.WithLabelValues(m.name, outcomeWords[what], source.String())
	kept.Store(&found)
	return &found
}

// processStart is what sinceStart counts from. It has a monotonic reading.
var processStart = time.Now()

// sinceStart is a time to take differences of, at half of what time.Now costs,
// which reads the wall clock, too.
func sinceStart() time.Duration { return time.Since(processStart) }

func (m *routeMetrics) observe(took time.Duration) {
	if m == nil {
		return
	}
	m.processTime.Observe(took.Seconds())
}

// add adds to a series of the zone, unless the zone has gone with its last
// configuration, so that no series comes back.
func (m *routeMetrics) add(family *prometheus.CounterVec, n int64, labels ...string) {
	if m == nil {
		return
	}
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	if m.users > 0 {
		family.WithLabelValues(append([]string{m.name}, labels...)...).Add(float64(n))
	}
}

// decline counts a request that was refused.
func (m *routeMetrics) decline(reason string) {
	if m == nil {
		return
	}
	kept := &m.declined[0]
	if reason != reasonRate {
		kept = &m.declined[1]
	}
	if counter := kept.Load(); counter != nil {
		(*counter).Inc()
		return
	}
	usedRoutes.mu.Lock()
	defer usedRoutes.mu.Unlock()
	if m.users > 0 {
		counter := processCollectors().declined.WithLabelValues(m.name, reason)
		counter.Inc()
		kept.Store(&counter)
	}
}

// beginCharges makes the series of a route that charges by answers, or bans.
func (m *routeMetrics) beginCharges(by *meter, ban bool) {
	c := processCollectors()
	if by != nil {
		m.add(c.cut, 0)
		for _, reason := range []string{unreadMissing, unreadInvalid, unreadEncoded, unreadUnseen} {
			m.add(c.unread, 0, reason)
		}
	}
	if ban {
		m.add(c.banned, 0)
		m.add(c.declined, 0, reasonBan)
	}
}

// countUnread counts an answer that does not say what it cost.
func (m *routeMetrics) countUnread(reason string) { m.add(processCollectors().unread, 1, reason) }

// countCut counts what a debt had no room for.
func (m *routeMetrics) countCut(tokens int64) { m.add(processCollectors().cut, tokens) }

// countBan counts a ban.
func (m *routeMetrics) countBan() { m.add(processCollectors().banned, 1) }

func (m *routeMetrics) count(what outcome, source limit.Source) {
	if m == nil {
		return
	}
	if counter := m.counter(what, source); counter != nil {
		(*counter).Inc()
	}
}

// decisionBuckets are in seconds: close where an answer in memory becomes one of
// Redis' (0.1 ms), and between 1 ms and the 5 ms that a decision may wait.
func decisionBuckets() []float64 {
	return []float64{5e-6, 2e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 7.5e-3, 1e-2, 0.025, 0.1, 0.25, 1}
}
