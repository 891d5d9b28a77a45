package redisbucket

import (
	"errors"
	"fmt"
	"strings"
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
)

// What Status says of a breaker that lets calls through.
const (
	breakerClosed = "closed"
	breakerOpen   = "open"
	breakerOff    = "off"
)

// circuit is the breaker's type: results go another way.
type circuit = gobreaker.CircuitBreaker[struct{}]

// newCircuit makes the breaker of a node, nil where it is off.
func (n *node) newCircuit() *circuit {
	settings := n.client.options.Breaker
	if settings.Off {
		return nil
	}
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Interval:     breakerWindow,
		BucketPeriod: breakerBucket,
		Timeout:      settings.Open,
		IsExcluded:   saysNothing,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			ended := counts.TotalSuccesses + counts.TotalFailures
			return int(counts.ConsecutiveFailures) >= settings.Failures ||
				ended >= breakerCalls && 2*counts.TotalFailures >= ended
		},
		OnStateChange: func(_ string, from, to gobreaker.State) { n.stateChanged(from, to) },
	})
}

// saysNothing reports whether a call's error says nothing about whether Redis
// works: the caller went away, or the answer concerned one key or slot.
func saysNothing(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errEarly) || errors.Is(err, errSame) {
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

// counted returns a call's failure in the form that the breaker counts. Calls
// that were under way when another one failed met the same event, and count as
// one: a hiccup of Redis, or of this process, is no row of failures.
func (n *node) counted(began time.Time, err error) error {
	last := n.lastCounted.Load()
	if last != nil && began.Before(*last) {
		return fmt.Errorf("%w: %w", errSame, err)
	}
	now := time.Now()
	n.lastCounted.CompareAndSwap(last, &now)
	return err
}

// stateChanged is called under the breaker's mutex, so it only leaves a note:
// the supervisor of the run does the work.
func (n *node) stateChanged(from, to gobreaker.State) {
	now := time.Now()
	n.breakerSince.Store(&now)
	if to == gobreaker.StateOpen {
		n.client.nudge()
		select {
		case n.opened <- struct{}{}:
		default: // one is waiting already
		}
	}
	switch {
	case from == gobreaker.StateClosed && to == gobreaker.StateOpen:
		n.tell(Event{Kind: BreakerOpened, Detail: n.lastReason()})
	case to == gobreaker.StateClosed:
		n.tell(Event{Kind: BreakerClosed})
	}
}

// breakerError returns why no call is let through now, nil where one is. It
// keeps callers from waiting for a lane in vain.
func (n *node) breakerError() error {
	if n.circuit != nil && n.circuit.State() == gobreaker.StateOpen {
		return gobreaker.ErrOpenState
	}
	return nil
}

func (n *node) breakerState() string {
	if n.circuit == nil {
		return breakerOff
	}
	return n.circuit.State().String()
}

// guard runs one network call and counts how it ended.
func (n *node) guard(call func() (struct{}, error)) error {
	var err error
	if n.circuit == nil {
		_, err = call()
	} else {
		_, err = n.circuit.Execute(call)
	}
	return err
}
