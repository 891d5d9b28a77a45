package redisbucket

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// Client is a Redis, whatever it is made of: one server, the masters of a
// cluster, or the master that sentinels name. Each server that it talks to has
// connections, a queue and a circuit breaker of its own, so that the trouble of
// one concerns no tenant of another. A Client is shared by every configuration
// with the same Options and outlives them, so it keeps neither a logger nor a
// caller's context. It is safe for concurrent use.
type Client struct {
	options  Options   // with defaults
	seeds    []address // of Options.URLs
	identity string
	script   lua.Script
	waiters  sync.Pool    // of *waiter
	seed     maphash.Seed // of the waiters' hashes
	sole     *node        // the only server there is; nil where it has to be found

	view      atomic.Pointer[view]   // who serves what; nil while not started or not known
	running   atomic.Bool            // between the first Start and the last stop
	lost      atomic.Pointer[loss]   // why it could not be said last who serves
	successor atomic.Pointer[Client] // asked where this Client is not started
	begun     chan struct{}          // closed when calls need not wait for the first view any more
	onceBegun sync.Once
	stale     chan struct{} // somebody says that the view is wrong
	doubted   chan struct{} // an answer or a failure lets it be thought so

	mu     sync.Mutex
	nodes  map[string]*member // the servers that were found, by host
	starts int
	closed bool
	life   *life

	observers
	notes
}

// loss is why and when it could not be said who serves.
type loss struct {
	err error
	at  time.Time
}

// NewClient makes a Client, without asking the network and without a goroutine.
func NewClient(o Options) (*Client, error) {
	seeds, err := o.check()
	if err != nil {
		return nil, err
	}
	c := &Client{
		options: o.resolved(), seeds: seeds, identity: o.Identity(),
		script: lua.Take(), seed: maphash.MakeSeed(), begun: make(chan struct{}), stale: make(chan struct{}, 1), doubted: make(chan struct{}, 1),
		nodes: make(map[string]*member), observers: newObservers(),
	}
	c.waiters.New = func() any { return newWaiter() }
	if o.mode() == modeSingle {
		c.sole = newNode(c, seeds[0])
	}
	return c, nil
}

// Start keeps connections warm until stop is called, and for as long as anyone
// else has started the Client. It returns at once. Observe, which may be nil, is
// told of events one after another, from another goroutine, and must neither
// block for long nor call the Client. Stop waits, at most 2 seconds, until what
// the last user started has ended; it may be called more than once.
func (c *Client) Start(observe func(Event)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return func() {}
	}
	o := &observer{observe}
	c.watchWith(o)
	c.starts++
	if c.life == nil {
		c.life = c.begin()
	}
	return sync.OnceFunc(func() { c.stop(o) })
}

// Warm returns when the first attempt since Start has ended, either way, to find
// the servers and to connect to each of them, or when ctx is done. It returns at
// once where nobody has started the Client.
func (c *Client) Warm(ctx context.Context) {
	c.mu.Lock()
	l := c.life
	c.mu.Unlock()
	if l == nil {
		return
	}
	select {
	case <-l.warm:
	case <-l.context.Done():
	case <-ctx.Done():
	}
}

// SucceedBy names a Client for the same Redis that is asked from now on whenever
// this one is not started. A reload that changes a setting of the connection has
// a new Client, while requests of the old configuration still come to this one.
func (c *Client) SucceedBy(other *Client) { c.successor.Store(other) }

// acting returns the Client to ask: this one, or who has succeeded it. More than a
// few reloads outlive no request's interest.
func (c *Client) acting() *Client {
	const most = 16
	for range most {
		next := c.successor.Load()
		if next == nil || c.running.Load() {
			break
		}
		c = next
	}
	return c
}

// Identity returns the Options.Identity of what is talked to.
func (c *Client) Identity() string { return c.identity }

// Destruct closes everything, whoever has started the Client. From then on Take
// and Reset return errors and Start does nothing.
func (c *Client) Destruct() error {
	c.mu.Lock()
	c.closed = true
	c.starts = 0
	l := c.endLife()
	c.beginOnce()
	c.mu.Unlock()
	l.finish()
	return nil
}

func (c *Client) stop(o *observer) {
	c.forget(o)
	c.mu.Lock()
	var l *life
	if c.starts > 0 {
		if c.starts--; c.starts == 0 {
			l = c.endLife()
		}
	}
	c.mu.Unlock()
	l.finish()
}

// take has a waiter decided by whoever serves its keys.
func (c *Client) take(ctx context.Context, w *waiter) (limit.Decision, error) {
	v, err := c.ready(ctx, w.deadline)
	if err != nil {
		return c.answer(w, err)
	}
	if v.owners == nil {
		return v.nodes[0].take(ctx, w)
	}
	return c.takeBySlot(ctx, v, w)
}

// answer returns what a waiter has come for and puts it away, unless it has been
// sent elsewhere: then its caller goes on with it.
func (c *Client) answer(w *waiter, err error) (limit.Decision, error) {
	decision := w.decision
	w.decision, w.err = limit.Decision{}, nil
	if err != nil {
		if redirectIn(err) == nil {
			c.waiters.Put(w)
		}
		return limit.Decision{}, err
	}
	c.waiters.Put(w)
	return decision, nil
}

// ready returns the view. Before the first one it waits for it: a server may hand
// out requests a moment before its config's other parts run.
func (c *Client) ready(ctx context.Context, deadline time.Time) (*view, error) {
	if v := c.view.Load(); v != nil {
		return v, nil
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-c.begun:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v := c.view.Load(); v != nil {
		return v, nil
	}
	return nil, c.notRunning()
}

// notRunning is why nobody can be asked.
func (c *Client) notRunning() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.life == nil:
		return errNotStarted
	}
	if lost := c.lost.Load(); lost != nil {
		return lost.err
	}
	return errNotFound
}

// nudge says that the view is wrong by now.
func (c *Client) nudge() { signal(c.stale) }

// doubt says that the view may be wrong. That may be said as often as there are
// requests, and is looked into less and less often.
func (c *Client) doubt() { signal(c.doubted) }

func signal(sign chan<- struct{}) {
	select {
	case sign <- struct{}{}:
	default: // it was said already
	}
}

// beginOnce lets calls go on that came before the first view.
func (c *Client) beginOnce() { c.onceBegun.Do(func() { close(c.begun) }) }

// life is the time between the first Start of a Client and the last stop.
type life struct {
	client  *Client
	context context.Context // its own, not a caller's
	end     context.CancelFunc
	wait    sync.WaitGroup
	warm    chan struct{}
	once    sync.Once // closes warm
	runs    []*run    // of the nodes; set at the end
}

// begin starts the goroutines of a life. It is called with mu held.
func (c *Client) begin() *life {
	l := &life{client: c, warm: make(chan struct{})}
	l.context, l.end = context.WithCancel(context.Background())
	c.lost.Store(nil)
	c.running.Store(true)
	l.wait.Go(l.dispatch)
	if c.sole != nil {
		c.sole.start()
		c.view.Store(&view{nodes: []*node{c.sole}})
		c.beginOnce()
		l.wait.Go(func() {
			c.sole.await(l.context)
			l.warmOnce()
		})
		return l
	}
	l.wait.Go(l.follow)
	if c.options.mode() == ModeSentinel {
		for _, sentinel := range c.sentinels() {
			l.wait.Go(func() { l.listen(sentinel) })
		}
	}
	return l
}

// endLife takes the life away, if there is one, with the runs of all nodes: the
// next life, which may begin before this one has ended, has its own. It is called
// with mu held.
func (c *Client) endLife() *life {
	l := c.life
	if l == nil {
		return nil
	}
	c.life = nil
	c.running.Store(false)
	c.view.Store(nil)
	l.runs = c.takeRuns()
	return l
}

// finish ends the goroutines of a life and of its nodes, and waits for them.
func (l *life) finish() {
	if l == nil {
		return
	}
	l.end()
	var wait sync.WaitGroup
	for _, r := range l.runs {
		wait.Go(r.finish)
	}
	done := make(chan struct{})
	go func() {
		wait.Wait()
		l.wait.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
}

// takeRuns takes the runs of all nodes away, and forgets those that were found. It
// is called with mu held.
func (c *Client) takeRuns() []*run {
	if c.sole != nil {
		return []*run{c.sole.takeRun()}
	}
	runs := make([]*run, 0, len(c.nodes))
	for _, m := range c.nodes {
		runs = append(runs, m.node.takeRun())
	}
	clear(c.nodes)
	return runs
}

// dispatch tells events.
func (l *life) dispatch() {
	for {
		select {
		case event := <-l.client.events:
			l.client.dispatch(event)
		case <-l.context.Done():
			return
		}
	}
}

func (l *life) warmOnce() { l.once.Do(func() { close(l.warm) }) }
