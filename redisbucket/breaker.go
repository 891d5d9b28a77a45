package redisbucket

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

const (
	// breakerWindow is the span that failures are counted in, by buckets of
	// breakerBucket.
	breakerWindow = 10 * time.Second
	breakerBucket = time.Second
	// breakerCalls is how many calls must have ended in the window before half of
	// them failing opens the breaker.
	breakerCalls = 20
	// earlier is the part of the open time by which it may be shortened, so that
	// many gateways do not probe in step.
	earlier = 10
)

// What Status says of a breaker that lets calls through.
const (
	breakerClosed = "closed"
	breakerOpen   = "open"
	breakerOff    = "off"
)

// circuit is the breaker of a node: gobreaker, and what a request reads of it
// without a lock.
type circuit struct {
	*gobreaker.CircuitBreaker[struct{}] // nil where it is off

	began time.Time     // times are counted from here
	open  time.Duration // how long it stays open
	shut  atomic.Int64  // until when it is open, half-open from then on; 0 while it is closed

	probing     atomic.Bool  // a request finds out whether it may be closed
	lastCounted atomic.Int64 // when the last failure was counted that was an event of its own
	row         atomic.Int64 // how many of those there were without a success in between
	transport   atomic.Bool  // the last failure was none that Redis replied
	changed     atomic.Int64 // when it last changed its state; 0 before that
	opened      chan struct{}
}

// newCircuit makes the breaker of a node.
func (n *node) newCircuit() *circuit {
	settings := n.client.options.Breaker
	c := &circuit{began: time.Now(), opened: make(chan struct{}, 1)}
	if settings.Off {
		c.open = DefaultBreakerOpen // what attempts to connect go by
		return c
	}
	c.open = settings.Open - rand.N(settings.Open/earlier) //nolint:gosec // nothing depends on who can guess it
	c.CircuitBreaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     breakerWindow,
		BucketPeriod: breakerBucket,
		Timeout:      c.open,
		IsExcluded:   saysNothing,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			ended := counts.TotalSuccesses + counts.TotalFailures
			return c.row.Load() >= int64(settings.Failures) || ended >= breakerCalls && 2*counts.TotalFailures >= ended
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { n.stateChanged(from, to) },
	})
	return c
}

// now is the time since the breaker was made, in ns, never 0.
func (c *circuit) now() int64 { return c.at(time.Now()) }

func (c *circuit) at(t time.Time) int64 { return int64(t.Sub(c.began)) + 1 }

// closed reports whether every request may ask.
func (c *circuit) closed() bool { return c.shut.Load() == 0 }

// word tells Status whether requests may ask.
func (c *circuit) word() string {
	if c.CircuitBreaker == nil {
		return breakerOff
	}
	return c.State().String()
}

// admit returns the run where a request may ask now. Where the breaker was open
// and the time is over, that is one request at a time, which probes, and must say
// that it has probed.
func (n *node) admit() (r *run, probe bool, err error) {
	if r = n.current.Load(); r == nil {
		return nil, false, n.notRunning()
	}
	c := n.circuit
	until := c.shut.Load()
	if until == 0 {
		return r, false, nil
	}
	r.connections.want()
	if c.now() < until || !c.probing.CompareAndSwap(false, true) {
		return nil, false, gobreaker.ErrOpenState
	}
	return r, true, nil
}

// probed ends what admit has begun.
func (n *node) probed(probe bool) {
	if probe {
		n.circuit.probing.Store(false)
	}
}

// guard makes one exchange and counts how it ended.
func (n *node) guard(c *call) error {
	exchange := c.bound
	if n.circuit.CircuitBreaker == nil {
		_, err := exchange()
		return err
	}
	_, err := n.circuit.Execute(exchange)
	return err
}

// saysNothing reports whether a call's error says nothing about whether Redis
// works: the caller went away, or the answer concerned one key or slot.
func saysNothing(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errEarly) {
		return true
	}
	switch replyClass(err) {
	case "NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "WRONGTYPE":
		return true
	case "CLUSTERDOWN":
		// Only this slot has no master. "The cluster is down" concerns all of them.
		return strings.Contains(err.Error(), "Hash slot not served")
	}
	return false
}

// counted notes a call's failure. Calls that were under way when another one
// failed met the same event, and are one in a row: a hiccup of Redis, or of this
// process, is no row of failures.
func (n *node) counted(began time.Time, err error) error {
	n.noteFailure(err)
	if saysNothing(err) {
		return err
	}
	c := n.circuit
	c.transport.Store(!fromRedis(err))
	if last := c.lastCounted.Load(); last == 0 || c.at(began) >= last {
		if c.lastCounted.CompareAndSwap(last, c.now()) {
			c.row.Add(1)
		}
	}
	return err
}

// succeeded ends a row of failures.
func (n *node) succeeded() {
	if n.circuit.row.Load() != 0 {
		n.circuit.row.Store(0)
	}
}

// unanswered counts a PING without an answer. One with an answer is no success,
// and none of them probes.
func (n *node) unanswered(began time.Time, err error) {
	if n.circuit.CircuitBreaker == nil || !n.circuit.closed() {
		n.noteFailure(err)
		return
	}
	_, _ = n.circuit.Execute(func() (struct{}, error) { return struct{}{}, n.counted(began, err) })
}

// stateChanged is called under the breaker's mutex, so it only leaves notes: the
// keeper of the connections does the work.
func (n *node) stateChanged(from, to gobreaker.State) {
	c := n.circuit
	c.changed.Store(c.now())
	switch to {
	case gobreaker.StateOpen:
		c.shut.Store(c.now() + int64(c.open))
		n.client.nudge()
		signal(c.opened)
	case gobreaker.StateClosed:
		c.row.Store(0)
		c.shut.Store(0)
	case gobreaker.StateHalfOpen:
	}
	switch {
	case from == gobreaker.StateClosed && to == gobreaker.StateOpen:
		last := n.last()
		n.tell(Event{Kind: BreakerOpened, Detail: last.reason, Words: last.words})
	case to == gobreaker.StateClosed:
		n.tell(Event{Kind: BreakerClosed})
	}
}
