package redisbucket

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// lookEvery is how often it is asked who serves while all is well.
	lookEvery = 10 * time.Second
	// lookAgain is how soon it is asked again while a server does not answer, or
	// answers and failures say that the view is wrong. The wait doubles up to
	// lookSlowly, and begins anew after lookEvery without either: each look costs the
	// servers that are well a connection of every gateway.
	lookAgain  = 50 * time.Millisecond
	lookSlowly = 500 * time.Millisecond
	// lookTimeout bounds one look.
	lookTimeout = 2 * time.Second
	// warmTimeout is how long a new view waits for connections to its new servers.
	// Until then the old one counts.
	warmTimeout = 250 * time.Millisecond
	// retireAfter is how long a server that serves no more is kept for the calls
	// under way, and for a cluster that changes its mind.
	retireAfter = 2 * time.Second
	// mostStrays is how many servers are talked to, at most, that are in no view.
	mostStrays = 16
)

// member is a server that was found.
type member struct {
	node   *node
	unused time.Time // since when it is in no view; zero while it is
}

// follow keeps the view right: it asks who serves at regular times, when an
// answer or a failure says that the view is wrong, and often while there is
// trouble, because nobody tells when a fail-over is over.
func (l *life) follow() {
	for pause, ok := lookAgain, true; ok; pause, ok = l.rest(pause) {
		l.look()
		l.warmOnce()
	}
}

// rest waits until it is to be asked again: for the pause where there is trouble or
// doubt, less where somebody says that the view is wrong by now. It returns the next
// pause, and false where the life has ended.
func (l *life) rest(pause time.Duration) (next time.Duration, ok bool) {
	if !l.sleep(lookAgain) {
		return 0, false
	}
	c := l.client
	paused, late := time.After(pause-lookAgain), time.After(lookEvery-lookAgain)
	var doubted <-chan struct{} // once the pause is over
	for {
		select {
		case <-paused:
			if v := c.view.Load(); v == nil || v.troubled() {
				return min(2*pause, lookSlowly), true
			}
			doubted = c.doubted
		case <-c.stale:
			return min(2*pause, lookSlowly), true
		case <-doubted:
			return min(2*pause, lookSlowly), true
		case <-late:
			return lookAgain, true
		case <-l.context.Done():
			return 0, false
		}
	}
}

// sleep waits for d. It is false where the life has ended.
func (l *life) sleep(d time.Duration) bool {
	return wait(l.context, d, nil) && l.context.Err() == nil
}

// look asks who serves, and makes that the view.
func (l *life) look() {
	ctx, cancel := context.WithTimeout(l.context, lookTimeout)
	defer cancel()
	c := l.client
	find := c.findInCluster
	if c.options.mode() == ModeSentinel {
		find = c.findBySentinels
	}
	masters, err := find(ctx)
	if err != nil {
		if l.context.Err() == nil {
			c.missed(err)
		}
		return
	}
	c.found()
	l.settle(ctx, masters)
}

// settle makes the masters the view, when those that are new have been connected
// to or cannot be for now.
func (l *life) settle(ctx context.Context, masters []master) {
	c := l.client
	nodes := make([]*node, len(masters))
	for i, m := range masters {
		if nodes[i] = c.enlist(m.host); nodes[i] == nil {
			return // it has ended
		}
	}
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	for _, n := range nodes {
		n.await(ctx)
	}
	next := newView(masters, nodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life != l {
		return
	}
	before := c.view.Swap(next).hosts()
	if after := next.hosts(); before != "" && before != after {
		c.tell(Event{Kind: MastersChanged, Address: c.identity, Detail: after})
	}
	c.beginOnce()
	c.retire(next, time.Now())
}

// enlist returns the node of a host, made and started if it is new; nil where the
// Client is not started.
func (c *Client) enlist(host string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member(host)
}

// redirectedTo is enlist for the server that an answer names, which nobody else has
// named yet. It returns nil where there are mostStrays of those already: answers
// that send everyone elsewhere must not make connections without end.
func (c *Client) redirectedTo(host string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[host] == nil && len(c.nodes) >= len(c.serve())+mostStrays {
		return nil
	}
	return c.member(host)
}

// member is enlist with mu held.
func (c *Client) member(host string) *node {
	if c.life == nil {
		return nil
	}
	m := c.nodes[host]
	if m == nil {
		m = &member{node: newNode(c, c.seeds[0].at(host))}
		m.node.start()
		c.nodes[host] = m
	}
	return m.node
}

// retire stops the nodes that have been in no view for a while. It is called with
// mu held.
func (c *Client) retire(v *view, now time.Time) {
	used := make(map[*node]bool, len(v.nodes))
	for _, n := range v.nodes {
		used[n] = true
	}
	for host, m := range c.nodes {
		switch {
		case used[m.node]:
			m.unused = time.Time{}
		case m.unused.IsZero():
			m.unused = now
			c.life.wakeAfter(retireAfter)
		case now.Sub(m.unused) >= retireAfter:
			delete(c.nodes, host)
			c.life.wait.Go(m.node.stop)
		}
	}
}

// wakeAfter has the life look again, so that what is to be retired is.
func (l *life) wakeAfter(d time.Duration) {
	l.wait.Go(func() {
		if l.sleep(d) {
			l.client.nudge()
		}
	})
}

// missed notes that nobody could say who serves. What was known still counts.
func (c *Client) missed(err error) {
	wrapped := fmt.Errorf("%w: %w", errConnection, err)
	if isSetup(err) {
		wrapped = err
	}
	c.lost.Store(&loss{wrapped, time.Now()})
	c.beginOnce()
	if kind := lostKind(err); c.lostTold.Swap(uint32(kind)) != uint32(kind) {
		c.tell(Event{Kind: kind, Address: c.identity, Detail: Reason(wrapped)})
	}
}

// found notes that somebody could.
func (c *Client) found() {
	c.lost.Store(nil)
	if c.lostTold.Swap(0) != 0 {
		c.tell(Event{Kind: Reached, Address: c.identity})
	}
}

// inquiryPause is how long a server is given to answer before another one is
// asked too.
const inquiryPause = 100 * time.Millisecond

// inquire asks one server one thing, over a connection of its own.
func (c *Client) inquire(ctx context.Context, endpoint address, command ...any) (any, error) {
	var reply any
	err := c.visit(ctx, endpoint, func(client *redis.Client) (err error) {
		reply, err = client.Do(ctx, command...).Result()
		return err
	})
	return reply, err
}

// visit connects to a server for as long as use takes.
func (c *Client) visit(ctx context.Context, endpoint address, use func(*redis.Client) error) error {
	conn, err := dial(ctx, c.options, endpoint)
	if err != nil {
		return err
	}
	first := &hearing{Conn: conn}
	client := newConnection(c.options, endpoint, first)
	hangUp := func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	unhook := context.AfterFunc(ctx, hangUp)
	defer hangUp()
	defer unhook()
	return first.explained(use(client))
}

// said is what one of several servers answered.
type said[T any] struct {
	value T
	err   error
}

// inquiry is a question to several servers.
type inquiry[T any] struct {
	from   []address
	pause  time.Duration // before the next one is asked too, unless one was in vain; 0: all at once
	ask    func(context.Context, address) (T, error)
	enough func(said[T]) bool // looks at an answer, and reports whether no more are needed
}

// make asks until enough was said, or all have answered. Whoever is still being
// asked then is not waited for any longer than hanging up takes.
func (q inquiry[T]) make(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan said[T], len(q.from))
	next := make(chan struct{}, len(q.from))
	for i, endpoint := range q.from {
		go func() {
			if !wait(ctx, time.Duration(i)*q.pause, next) {
				answers <- said[T]{err: ctx.Err()}
				return
			}
			value, err := q.ask(ctx, endpoint)
			answers <- said[T]{value, err}
		}()
	}
	done := false
	for range q.from {
		answer := <-answers
		if done {
			continue
		}
		if done = q.enough(answer); done {
			cancel()
		} else {
			next <- struct{}{}
		}
	}
}

// mostTelling returns the error that tells the operator most of those of several
// servers: that what is asked for is not there, then what one of them replied, such
// as that the password is wrong, and only then that one does not answer.
func mostTelling(errs []error) error {
	for _, tells := range []func(error) bool{isSetup, fromRedis} {
		if at := slices.IndexFunc(errs, tells); at >= 0 {
			return errs[at]
		}
	}
	return errs[0]
}

// wait waits for d or a sign. It is false where ctx is done before.
func wait(ctx context.Context, d time.Duration, sign <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sign:
	case <-ctx.Done():
		return false
	}
	return true
}
