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

// endLife takes the life away, if there is one. It is called with mu held.
func (c *Client) endLife() *life {
	l := c.life
	c.life = nil
	c.running.Store(false)
	c.view.Store(nil)
	return l
}

// finish ends the goroutines of a life and the nodes, and waits for them.
func (l *life) finish() {
	if l == nil {
		return
	}
	l.end()
	var wait sync.WaitGroup
	for _, n := range l.client.takeNodes() {
		wait.Go(n.stop)
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

// takeNodes returns all nodes and forgets those that were found.
func (c *Client) takeNodes() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sole != nil {
		return []*node{c.sole}
	}
	nodes := make([]*node, 0, len(c.nodes))
	for _, m := range c.nodes {
		nodes = append(nodes, m.node)
	}
	clear(c.nodes)
	return nodes
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
