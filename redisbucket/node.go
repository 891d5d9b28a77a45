package redisbucket

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/lua"
)

// Node is one Redis: its connections and its circuit breaker. It is shared by
// every configuration with the same Options and outlives them, so it keeps
// neither a logger nor a caller's context. It is safe for concurrent use.
type Node struct {
	options Options // with defaults
	address address
	circuit *circuit // nil where it is off
	script  lua.Script
	names   scriptNames
	traffic traffic
	calls   sync.Pool    // of *call
	waiters sync.Pool    // of *waiter
	seed    maphash.Seed // of the waiters' hashes

	current       atomic.Pointer[generation] // nil while not started
	successor     atomic.Pointer[Node]       // asked where this Node is not started
	lastDial      atomic.Pointer[error]      // why the last connection attempt failed
	lastFailure   atomic.Pointer[failure]
	breakerSince  atomic.Pointer[time.Time]
	policyChecked atomic.Bool
	versionTold   atomic.Bool
	clusterTold   atomic.Bool
	unreached     atomic.Bool               // and it was told
	lastCounted   atomic.Pointer[time.Time] // when the breaker last counted a failure
	opened        chan struct{}             // the breaker has opened
	begun         chan struct{}             // closed at the first Start, or at Destruct
	onceBegun     sync.Once
	events        chan Event

	mu     sync.Mutex
	starts int
	closed bool
	run    *run

	watch     sync.Mutex // held while observers are told, so that none is after its stop
	observers map[*observer]struct{}
}

type observer struct{ observe func(Event) }

// scriptNames are the words of a script call, ready as arguments.
type scriptNames struct{ evalsha, sha1, eval, text any }

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
	// eventQueue bounds how many events wait for their observers.
	eventQueue = 64
)

// NewNode makes a Node, without asking the network and without a goroutine.
func NewNode(o Options) (*Node, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	endpoint, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	script := lua.Take()
	n := &Node{
		options: o.resolved(), address: endpoint, script: script,
		names:  scriptNames{"evalsha", script.SHA1, "eval", script.Text},
		opened: make(chan struct{}, 1), begun: make(chan struct{}), events: make(chan Event, eventQueue),
		observers: make(map[*observer]struct{}), seed: maphash.MakeSeed(),
	}
	n.circuit = n.newCircuit()
	n.calls.New = func() any { return newCall(n) }
	n.waiters.New = func() any { return newWaiter() }
	return n, nil
}

// Start keeps connections warm until stop is called, and for as long as anyone
// else has started the Node. It returns at once. Observe, which may be nil, is
// told of events one after another, from another goroutine, and must neither
// block for long nor call the Node. Stop waits, at most 2 seconds, until what
// the last user started has ended; it may be called more than once.
func (n *Node) Start(observe func(Event)) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return func() {}
	}
	o := &observer{observe}
	n.watchWith(o)
	n.starts++
	if n.run == nil {
		n.run = n.begin()
	}
	return sync.OnceFunc(func() { n.stop(o) })
}

// Warm returns when the first connection attempt since Start has ended, either
// way, or when ctx is done. It returns at once where nobody has started the Node.
func (n *Node) Warm(ctx context.Context) {
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

// SucceedBy names a Node for the same Redis that is asked from now on whenever
// this one is not started. A reload that changes a setting of the connection has
// a new Node, while requests of the old configuration still come to this one.
func (n *Node) SucceedBy(other *Node) { n.successor.Store(other) }

// acting returns the Node to ask: this one, or who has succeeded it. More than a
// few reloads outlive no request's interest.
func (n *Node) acting() *Node {
	const most = 16
	for range most {
		next := n.successor.Load()
		if next == nil || n.current.Load() != nil {
			break
		}
		n = next
	}
	return n
}

// Status returns the state of the breaker and the connections now.
func (n *Node) Status() Status {
	status := Status{Address: n.address.String(), Breaker: n.breakerState(), Traffic: n.traffic.read()}
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

// Destruct closes everything, whoever has started the Node. From then on Take
// and Reset return errors and Start does nothing.
func (n *Node) Destruct() error {
	n.mu.Lock()
	n.closed = true
	n.starts = 0
	r := n.endRun()
	n.beginOnce()
	n.mu.Unlock()
	r.finish()
	return nil
}

func (n *Node) stop(o *observer) {
	n.watch.Lock()
	delete(n.observers, o)
	n.watch.Unlock()
	n.mu.Lock()
	var r *run
	if n.starts > 0 {
		if n.starts--; n.starts == 0 {
			r = n.endRun()
		}
	}
	n.mu.Unlock()
	r.finish()
}

// tell queues an event for the observers; one too many is dropped.
func (n *Node) tell(event Event) {
	event.Address, event.At = n.address.String(), time.Now()
	select {
	case n.events <- event:
	default:
	}
}

func (n *Node) dispatch(event Event) {
	n.watch.Lock()
	defer n.watch.Unlock()
	for o := range n.observers {
		o.observe(event)
	}
}

func (n *Node) watchWith(o *observer) {
	if o.observe == nil {
		return
	}
	n.watch.Lock()
	defer n.watch.Unlock()
	n.observers[o] = struct{}{}
}

func (n *Node) lastReason() string {
	if last := n.lastFailure.Load(); last != nil {
		return last.reason
	}
	return ""
}

// attempted notes how a connection attempt ended.
func (n *Node) attempted(err error) {
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
func (n *Node) unreachable() error {
	if err := n.lastDial.Load(); err != nil {
		return *err
	}
	return nil
}

// noteFailure keeps an error's reason for Status.
func (n *Node) noteFailure(err error) {
	n.lastFailure.Store(&failure{reason: Reason(err), at: time.Now()})
	if replyClass(err) == "MOVED" && !n.clusterTold.Swap(true) {
		n.tell(Event{Kind: ClusterNode})
	}
}
