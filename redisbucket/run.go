package redisbucket

import (
	"context"
	"sync"
	"time"
)

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
