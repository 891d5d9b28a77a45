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
	outcomes = int(outcomeAllowed) + 1
)

var outcomeWords = [outcomes]string{"", "granted", "refused", "shadow", "unlimited", "denied", "unauthorized", "allowed"}

// collectors count over the whole life of the process: each config registers
// the same ones in its own registry, so that a reload does not set them back.
type collectors struct {
	requests      *prometheus.CounterVec
	declined      *prometheus.CounterVec
	processTime   *prometheus.HistogramVec
	redisErrors   *prometheus.CounterVec
	stateChanges  *prometheus.CounterVec
	eventsDropped *prometheus.CounterVec
}

func (c *collectors) all() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.declined, c.processTime, c.redisErrors, c.stateChanges, c.eventsDropped}
}

// decisionBuckets are in seconds: close where an answer in memory becomes one of
// Redis' (0.1 ms), and between 1 ms and the 5 ms that a decision may wait.
var decisionBuckets = []float64{5e-6, 2e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 5e-3, 7.5e-3, 1e-2, 0.025, 0.1, 0.25, 1}

var processCollectors = sync.OnceValue(func() *collectors {
	const namespace, subsystem = "caddy", "rate_limit"
	c := &collectors{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "requests_total",
			Help: "Requests that met a rate limit, by zone (the route), outcome and the source of the decision.",
		}, []string{"zone", "outcome", "source"}),
		declined: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "declined_requests_total",
			Help: "Requests that were refused with 429, by zone.",
		}, []string{"zone"}),
		processTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "process_time_seconds",
			Help:    "Seconds that a decision took, by zone.",
			Buckets: decisionBuckets,
		}, []string{"zone"}),
		redisErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "redis_errors_total",
			Help: "Decisions that Redis could not make and the fallback made, by reason.",
		}, []string{"reason"}),
		stateChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "state_changes_total",
			Help: "Changes of state, by the name of their event.",
		}, []string{"event"}),
		eventsDropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "events_dropped_total",
			Help: "Events that nobody saw because their subscribers take longer than they come, by event.",
		}, []string{"event"}),
	}
	c.preset()
	return c
})

// preset makes the series that alerts ask for, so that a first time is an
// increase from 0 and not a series that nobody has seen before.
func (c *collectors) preset() {
	for _, name := range stateEvents() {
		c.stateChanges.WithLabelValues(name)
		c.eventsDropped.WithLabelValues(name)
	}
	c.eventsDropped.WithLabelValues(exceededEvent)
	for _, reason := range []string{"timeout", "wait", "connection", "breaker_open"} {
		c.redisErrors.WithLabelValues(reason)
	}
}

func countRedisError(err error) {
	processCollectors().redisErrors.WithLabelValues(redisbucket.Reason(err)).Inc()
}

func countStateChange(event string) {
	processCollectors().stateChanges.WithLabelValues(event).Inc()
}

func countDroppedEvent(event string) {
	processCollectors().eventsDropped.WithLabelValues(event).Inc()
}

// metrics is a config's view of the collectors: one routeMetrics for each route.
type metrics struct {
	mu     sync.Mutex
	routes map[string]*routeMetrics
}

// registerMetrics registers the collectors and the state of the app.
func registerMetrics(registry *prometheus.Registry, app *App) (*metrics, error) {
	m := &metrics{routes: map[string]*routeMetrics{}}
	if registry == nil {
		return m, nil // a context made by hand, as in tests
	}
	var errs []error
	for _, collector := range append(processCollectors().all(), stateCollector{app}) {
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
		known = &routeMetrics{
			name:        name,
			declined:    processCollectors().declined.WithLabelValues(name),
			processTime: processCollectors().processTime.WithLabelValues(name),
		}
		m.routes[name] = known
	}
	return known
}

// routeMetrics are the series of one route. A counter is looked up by its labels
// once and kept, because the look-up costs more than a decision in memory. A nil
// pointer counts nothing.
type routeMetrics struct {
	name        string
	declined    prometheus.Counter
	processTime prometheus.Observer
	requests    [outcomes][limit.Sources]atomic.Pointer[prometheus.Counter]
}

func (m *routeMetrics) observe(took time.Duration) {
	if m == nil {
		return
	}
	m.processTime.Observe(took.Seconds())
}

func (m *routeMetrics) count(what outcome, source limit.Source) {
	if m == nil {
		return
	}
	if what == outcomeRefused {
		m.declined.Inc()
	}
	kept := &m.requests[what][source]
	counter := kept.Load()
	if counter == nil {
		found := processCollectors().requests.WithLabelValues(m.name, outcomeWords[what], source.String())
		counter = &found
		kept.Store(counter)
	}
	(*counter).Inc()
}
