package redisbucket

import (
	"context"
	"sync"
	"time"
)

// run is the time between a node's start and its stop.
type run struct {
	node    *node
	context context.Context // its own life, not a caller's
	end     context.CancelFunc
	wait    sync.WaitGroup
	senders *senders
	warm    chan struct{}
	warmed  bool
}

// begin starts the goroutines of a run. It is called with mu held.
func (n *node) begin() *run {
	r := &run{node: n, warm: make(chan struct{})}
	r.context, r.end = context.WithCancel(context.Background())
	n.lastDial.Store(nil)
	r.senders = newSenders(n, r.context)
	n.current.Store(r.newGeneration())
	r.wait.Go(r.supervise)
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

// supervise replaces the connections whenever the breaker opens, so that they
// are warm when it lets a call through.
func (r *run) supervise() {
	for {
		select {
		case <-r.node.opened:
			r.replace()
		case <-r.context.Done():
			return
		}
	}
}

// replace puts a new generation in place of the current one.
func (r *run) replace() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if r.context.Err() != nil || r.node.run != r {
		return
	}
	old := r.node.current.Swap(r.newGeneration())
	r.wait.Go(func() {
		select {
		case <-time.After(oldLife):
		case <-r.context.Done():
		}
		old.end()
	})
}

// warmOnce lets await return. It is called with the node's mu held.
func (r *run) warmOnce() {
	if !r.warmed {
		r.warmed = true
		close(r.warm)
	}
}
