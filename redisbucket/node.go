package redisbucket

import (
	"context"
	"errors"
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
	circuit *circuit
	traffic traffic
	calls   sync.Pool // of *call

	current     atomic.Pointer[run] // nil while not started
	lastFailure atomic.Pointer[failure]
	patience    atomic.Int64 // what a request last waited for at most, in ns
	unreached   atomic.Bool  // and it was told
	versionTold atomic.Bool  // that it is too old
	policy      atomic.Bool  // is known, and told where it evicts

	mu  sync.Mutex
	run *run
}

type failure struct {
	reason string
	words  string
	at     time.Time
}

const (
	// stopTimeout bounds the wait for what runs in the background to end.
	stopTimeout = 2 * time.Second
	// drainTimeout bounds the wait for calls that are under way at the end.
	drainTimeout = 50 * time.Millisecond
)

func newNode(c *Client, endpoint address) *node {
	n := &node{client: c, address: endpoint}
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
	r, probe, err := n.admit()
	if err != nil {
		return n.client.answer(w, err)
	}
	defer n.probed(probe)
	n.notePatience(int64(w.latest.Sub(w.arrived)))
	if w.patience() <= 0 {
		return n.client.answer(w, errWait) // asking in vain would cost the tokens and the connection
	}
	return r.senders.take(ctx, w, probe)
}

// notePatience notes about what a request waits at most.
func (n *node) notePatience(now int64) {
	if known := n.patience.Load(); now > known+known/4 || now < known/2 {
		n.patience.Store(now)
	}
}

// pingTimeout is how long is waited for the answer to a PING.
func (n *node) pingTimeout() time.Duration {
	return min(max(pingTimeouts*time.Duration(n.patience.Load()), leastPing), mostPing)
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
	r := n.current.Load()
	return r == nil || r.connections.alive.Load() == 0 || !n.circuit.closed()
}

// status returns the state of the breaker and the connections now.
func (n *node) status() NodeStatus {
	status := NodeStatus{Address: n.address.String(), Breaker: n.circuit.word(), Traffic: n.traffic.read()}
	if changed := n.circuit.changed.Load(); changed != 0 {
		status.Since = n.circuit.began.Add(time.Duration(changed))
	}
	if r := n.current.Load(); r != nil {
		status.Connections = int(r.connections.alive.Load())
	}
	if last := n.lastFailure.Load(); last != nil {
		status.LastReason, status.LastWords, status.LastFailure = last.reason, last.words, last.at
	}
	return status
}

// tell queues an event of the node.
func (n *node) tell(event Event) {
	event.Address = n.address.String()
	n.client.tell(event)
}

func (n *node) last() failure {
	if last := n.lastFailure.Load(); last != nil {
		return *last
	}
	return failure{}
}

// attempted notes how a connection attempt of a run ended: the error that failed it,
// and that in the words of who finds no connection.
func (n *node) attempted(r *run, cause, err error) {
	if err == nil {
		if n.unreached.Swap(false) {
			n.tell(Event{Kind: Reached})
		}
	} else {
		n.noteFailure(err)
		if r.connections.alive.Load() == 0 && !n.unreached.Swap(true) {
			n.tell(Event{Kind: Unreached, Detail: Reason(cause), Words: words(err)})
		}
	}
	r.warmOnce()
}

// noteFailure keeps an error's reason for Status, and has those looked for who
// serve: it may be another one by now.
func (n *node) noteFailure(err error) {
	n.lastFailure.Store(&failure{reason: Reason(err), words: words(err), at: time.Now()})
	if n.client.sole != nil && replyClass(err) == "MOVED" && !n.client.clusterTold.Swap(true) {
		n.tell(Event{Kind: ClusterNode})
	}
	n.client.doubt()
}

// run is the time between a node's start and its stop.
type run struct {
	node        *node
	context     context.Context // its own life, not a caller's
	end         context.CancelFunc
	wait        sync.WaitGroup
	senders     *senders
	connections *connections
	warm        chan struct{}
	once        sync.Once // closes warm
}

// begin starts the goroutines of a run. It is called with mu held.
func (n *node) begin() *run {
	r := &run{node: n, warm: make(chan struct{})}
	r.context, r.end = context.WithCancel(context.Background())
	r.senders = newSenders(r)
	r.connections = newConnections(r)
	n.current.Store(r)
	r.wait.Go(r.connections.keep)
	for range n.client.options.senders.most {
		r.wait.Go(r.senders.send)
	}
	return r
}

// takeRun takes the run away, if there is one.
func (n *node) takeRun() *run {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.run
	n.run = nil
	n.current.Store(nil)
	return r
}

// finish ends the goroutines of a run and waits for them.
func (r *run) finish() {
	if r == nil {
		return
	}
	r.senders.flush()
	r.drain()
	r.senders.end(r.node.notRunning())
	r.end()
	done := make(chan struct{})
	go func() {
		r.wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
}

// drain lets the calls end that are under way, for as long as that is not too long.
func (r *run) drain() {
	for deadline := time.Now().Add(drainTimeout); r.senders.underWay() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// warmOnce lets await return.
func (r *run) warmOnce() { r.once.Do(func() { close(r.warm) }) }
