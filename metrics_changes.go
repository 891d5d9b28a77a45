package ratelimit

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// changeCollectors count events. As the others, they live as long as the process.
type changeCollectors struct {
	changes *prometheus.CounterVec
	dropped *prometheus.CounterVec
}

var processChanges = sync.OnceValue(func() *changeCollectors {
	const namespace, subsystem = "caddy", "rate_limit"
	c := &changeCollectors{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "state_changes_total",
			Help: "Changes of state, by the name of their event.",
		}, []string{"event"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: subsystem, Name: "events_dropped_total",
			Help: "Events that nobody saw because their subscribers take longer than they come, by event.",
		}, []string{"event"}),
	}
	// Made before they count, so that a first time is an increase from 0 and not a
	// series that nobody has seen before.
	for _, name := range stateEvents() {
		c.changes.WithLabelValues(name)
		c.dropped.WithLabelValues(name)
	}
	c.dropped.WithLabelValues(exceededEvent)
	for _, reason := range []string{"timeout", "wait", "connection", "breaker_open"} {
		processCollectors().redisErrors.WithLabelValues(reason)
	}
	return c
})

// registerChanges registers the counters of events.
func registerChanges(registry *prometheus.Registry) error {
	c := processChanges()
	return errors.Join(registry.Register(c.changes), registry.Register(c.dropped))
}

func countStateChange(event string) { processChanges().changes.WithLabelValues(event).Inc() }

func countDroppedEvent(event string) { processChanges().dropped.WithLabelValues(event).Inc() }
