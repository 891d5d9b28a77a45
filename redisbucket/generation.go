package redisbucket

import (
	"context"
	"sync/atomic"
	"time"
)

// generation is a set of lanes that were made together. When the breaker opens,
// another one takes its place, so that no connection from before is used again.
type generation struct {
	node    *node
	senders *senders
	began   time.Time
	context context.Context // its own life, not a caller's
	end     context.CancelFunc
	idle    chan *lane
	dials   chan struct{} // holds a token for each connection attempt under way
	alive   atomic.Int32  // lanes that are connected
	suspect atomic.Int64  // lanes that answered last before this are to be checked
	demoted atomic.Int64  // lanes that were connected before this lead to a replica
}

// newGeneration starts the keepers of a new set of lanes.
func (r *run) newGeneration() *generation {
	g := &generation{
		node: r.node, senders: r.senders, began: time.Now(),
		idle: make(chan *lane, laneCount), dials: make(chan struct{}, dialsAtOnce),
	}
	g.context, g.end = context.WithCancel(r.context)
	for range laneCount {
		r.wait.Go(func() { g.keep(&lane{back: make(chan struct{}, 1)}) })
	}
	r.wait.Go(g.check)
	return g
}

// check hands idle lanes that have not answered for a while to their keepers, a
// few at a time. The longest idle lane is the channel's first.
func (g *generation) check() {
	ticker := time.NewTicker(checkEvery * checksPerRound / laneCount)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.checkRound()
		case <-g.context.Done():
			return
		}
	}
}

func (g *generation) checkRound() {
	for range checksPerRound {
		select {
		case l := <-g.idle:
			if g.now()-l.proved < int64(checkEvery) {
				g.idle <- l
				return
			}
			l.back <- struct{}{}
		default:
			return
		}
	}
}

// borrow returns an idle lane, and waits for one until deadline.
func (g *generation) borrow(ctx context.Context, deadline time.Time) (*lane, error) {
	for {
		l, err := g.next(ctx, deadline)
		if err != nil {
			return nil, err
		}
		if l.proved >= g.suspect.Load() && !g.outlived(l) {
			return l, nil
		}
		l.back <- struct{}{}
	}
}

func (g *generation) next(ctx context.Context, deadline time.Time) (*lane, error) {
	select {
	case l := <-g.idle:
		return l, nil
	default:
	}
	if err := g.hopeless(); err != nil {
		return nil, err
	}
	budget := time.Until(deadline)
	timer := time.NewTimer(budget)
	defer timer.Stop()
	select {
	case l := <-g.idle:
		if time.Until(deadline) < budget/4 {
			// Too little is left for an answer: asking would cost the tokens, the
			// connection, and count as Redis' failure.
			g.idle <- l
			return nil, errWait
		}
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.context.Done():
		return nil, errWait
	case <-timer.C:
		if err := g.hopeless(); err != nil {
			return nil, err
		}
		return nil, errWait
	}
}

// hopeless returns why no lane is to be expected soon: none is connected, and
// the last attempt failed.
func (g *generation) hopeless() error {
	if g.alive.Load() > 0 {
		return nil
	}
	return g.node.unreachable()
}

// giveBack ends a loan after a call.
func (g *generation) giveBack(l *lane, c *call) {
	err := c.err
	switch {
	case !c.asked:
		g.idle <- l
	case replyClass(err) == "READONLY":
		g.demote()
		l.broken = true
		l.back <- struct{}{}
	case err == nil || fromRedis(err):
		l.proved = g.now()
		g.idle <- l
	case Reason(err) == "connection":
		// What cut this connection may have cut the others: none is lent again
		// before it has answered.
		g.suspect.Store(g.now())
		fallthrough
	default:
		l.broken = true
		l.back <- struct{}{}
	}
}

// demote notes that the server at the end of a lane is no master. The other lanes
// lead there, too, and only new ones to its successor. Where there is none yet, new
// lanes do no better, and are made anew together only so often.
func (g *generation) demote() {
	last, now := g.demoted.Load(), g.now()
	if last == 0 || now-last >= int64(checkEvery) {
		g.demoted.Store(now)
	}
}

// outlived reports whether the server at the lane's end was a master when the lane
// was made, and is none now.
func (g *generation) outlived(l *lane) bool { return l.made < g.demoted.Load() }

func (g *generation) now() int64 { return int64(time.Since(g.began)) }
