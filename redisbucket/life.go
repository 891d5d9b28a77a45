package redisbucket

import (
	"context"
	"sync"
	"time"
)

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
