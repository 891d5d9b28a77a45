package redisbucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// node is one server: its connections, its senders and its circuit breaker. Who
// serves may change, but the address of a node does not: another master is
// another node, whose breaker knows nothing of the old one's failures.
type node struct {
	client  *Client
	address address
	circuit *circuit // nil where it is off
	traffic traffic
	calls   sync.Pool // of *call

	current      atomic.Pointer[generation] // nil while not started
	lastDial     atomic.Pointer[error]      // why the last connection attempt failed
	lastFailure  atomic.Pointer[failure]
	breakerSince atomic.Pointer[time.Time]
	unreached    atomic.Bool               // and it was told
	versionTold  atomic.Bool               // that it is too old
	policy       atomic.Bool               // is known, and told where it evicts
	lastCounted  atomic.Pointer[time.Time] // when the breaker last counted a failure
	opened       chan struct{}             // the breaker has opened

	mu  sync.Mutex
	run *run
}

type failure struct {
	reason string
	at     time.Time
}

const (
	// stopTimeout bounds the wait for what runs in the background to end.
	stopTimeout = 2 * time.Second
	// drainTimeout bounds the wait for calls that are under way at the end.
	drainTimeout = 50 * time.Millisecond
	// oldLife is how long replaced connections live on, for the calls under way.
	oldLife = time.Second
)

func newNode(c *Client, endpoint address) *node {
	n := &node{client: c, address: endpoint, opened: make(chan struct{}, 1)}
	n.circuit = n.newCircuit()
	n.calls.New = func() any { return newCall(n) }
	return n
}

// start connects, unless it has started already.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run == nil {
		n.run = n.begin()
	}
}

// stop ends what start began and waits for it, for at most stopTimeout.
func (n *node) stop() { n.takeRun().finish() }

// await returns when the first connection attempt has ended, either way.
func (n *node) await(ctx context.Context) {
	n.mu.Lock()
	r := n.run
	n.mu.Unlock()
	if r == nil {
		return
	}
	select {
	case <-r.warm:
	case <-r.context.Done():
	case <-ctx.Done():
	}
}

// take has a waiter decided by the senders of the run.
func (n *node) take(ctx context.Context, w *waiter) (limit.Decision, error) {
	g, err := n.ready(w.deadline)
	if err != nil {
		return n.client.answer(w, err)
	}
	return g.senders.take(ctx, w)
}

// ready returns the current generation where a call may be made: the node is
// started, the breaker lets calls through, and there is time left.
func (n *node) ready(deadline time.Time) (*generation, error) {
	g := n.current.Load()
	if g == nil {
		return nil, n.notRunning()
	}
	if err := n.breakerError(); err != nil {
		return nil, err
	}
	if time.Until(deadline) <= 0 {
		return nil, errWait // asking in vain would cost the tokens and the connection
	}
	return g, nil
}

// notRunning is why there is no generation.
func (n *node) notRunning() error {
	if err := n.client.notRunning(); !errors.Is(err, errNotFound) {
		return err
	}
	return errRetired
}

// troubled reports whether the node does not answer, as far as is known.
func (n *node) troubled() bool {
	g := n.current.Load()
	if g == nil || g.alive.Load() == 0 {
		return true
	}
	state := n.breakerState()
	return state != breakerClosed && state != breakerOff
}

// status returns the state of the breaker and the connections now.
func (n *node) status() NodeStatus {
	status := NodeStatus{Address: n.address.String(), Breaker: n.breakerState(), Traffic: n.traffic.read()}
	if since := n.breakerSince.Load(); since != nil {
		status.Since = *since
	}
	if g := n.current.Load(); g != nil {
		status.Connections = int(g.alive.Load())
	}
	if last := n.lastFailure.Load(); last != nil {
		status.LastReason, status.LastFailure = last.reason, last.at
	}
	return status
}

// tell queues an event of the node.
func (n *node) tell(event Event) {
	event.Address = n.address.String()
	n.client.tell(event)
}

func (n *node) lastReason() string {
	if last := n.lastFailure.Load(); last != nil {
		return last.reason
	}
	return ""
}

// attempted notes how a connection attempt ended.
func (n *node) attempted(err error) {
	if err == nil {
		n.lastDial.Store(nil)
		if n.unreached.Swap(false) {
			n.tell(Event{Kind: Reached})
		}
	} else {
		wrapped := fmt.Errorf("%w: %w", errConnection, err)
		n.noteFailure(wrapped)
		n.lastDial.Store(&wrapped)
		if g := n.current.Load(); (g == nil || g.alive.Load() == 0) && !n.unreached.Swap(true) {
			n.tell(Event{Kind: Unreached, Detail: Reason(err)})
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.run != nil {
		n.run.warmOnce()
	}
}

// unreachable returns the error of the last connection attempt, if it failed.
func (n *node) unreachable() error {
	if err := n.lastDial.Load(); err != nil {
		return *err
	}
	return nil
}

// noteFailure keeps an error's reason for Status, and has those looked for who
// serve: it may be another one by now.
func (n *node) noteFailure(err error) {
	n.lastFailure.Store(&failure{reason: Reason(err), at: time.Now()})
	if n.client.sole != nil && replyClass(err) == "MOVED" && !n.client.clusterTold.Swap(true) {
		n.tell(Event{Kind: ClusterNode})
	}
	n.client.doubt()
}

// command makes a call of its own, beside those of the senders, and returns what
// was replied.
func (n *node) command(ctx context.Context, asking bool, list []any) ([]byte, error) {
	c := n.calls.Get().(*call)
	defer c.release()
	c.other, c.asking = list, asking
	c.until.deadline = untilOrSecond(ctx)
	caller, ok := ctx.Deadline()
	c.early = ok && !caller.After(c.until.deadline)
	if _, err := n.ready(c.until.deadline); err != nil {
		return nil, err
	}
	if err := n.do(ctx, c); err != nil {
		return nil, n.redirected(err)
	}
	return bytes.Clone(c.reply.data), nil
}

// untilOrSecond returns the deadline of ctx, or that of a call without one.
func untilOrSecond(ctx context.Context) time.Time {
	until := time.Now().Add(outerTimeout)
	if caller, ok := ctx.Deadline(); ok && caller.Before(until) {
		return caller
	}
	return until
}
