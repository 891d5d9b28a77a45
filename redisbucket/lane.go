package redisbucket

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane is one connection. Whoever received it from the idle channel, or its
// keeper, owns it; nobody else touches it.
type lane struct {
	conn   *redis.Conn
	hangUp func()        // closes the connection, whoever uses it
	unhook func() bool   // forgets to hang up when the generation ends
	proved int64         // when it last answered, in ns since the generation began
	broken bool          // it must be made anew
	back   chan struct{} // to its keeper: it is broken, or is to be checked
}

// generation is a set of lanes that were made together. When the breaker opens,
// another one takes its place, so that no connection from before is used again.
type generation struct {
	node    *Node
	began   time.Time
	context context.Context //nolint:containedctx // its own life, not a caller's
	end     context.CancelFunc
	idle    chan *lane
	dials   chan struct{} // holds a token for each connection attempt under way
	alive   atomic.Int32  // lanes that are connected
	suspect atomic.Int64  // lanes that answered last before this are to be checked
}

const (
	// laneCount is how many connections a Node keeps, and so how many calls can be
	// under way. One connection answers thousands of calls a second.
	laneCount = 16
	// dialsAtOnce is how many lanes connect at the same time.
	dialsAtOnce = 2
	// checkEvery is after how long without an answer an idle lane is asked.
	checkEvery = 500 * time.Millisecond
	// checksPerRound of the idle lanes are asked at once, so that most stay free.
	checksPerRound = laneCount / 4
	// maxBackoff is the longest wait between two attempts to connect a lane.
	maxBackoff = 500 * time.Millisecond
)

// newGeneration starts the keepers of a new set of lanes.
func (r *run) newGeneration() *generation {
	g := &generation{
		node: r.node, began: time.Now(),
		idle: make(chan *lane, laneCount), dials: make(chan struct{}, dialsAtOnce),
	}
	g.context, g.end = context.WithCancel(r.context)
	for range laneCount {
		r.wait.Go(func() { g.keep(&lane{back: make(chan struct{}, 1)}) })
	}
	r.wait.Go(g.check)
	return g
}

// keep connects a lane, lends it, and makes it anew when it is broken. When the
// generation ends the lane may be lent, so that it is not touched.
func (g *generation) keep(l *lane) {
	for g.connect(l) {
		g.alive.Add(1)
		for healthy := true; healthy; healthy = !l.broken && g.prove(l) == nil {
			g.idle <- l
			select {
			case <-l.back:
			case <-g.context.Done():
				g.alive.Add(-1)
				return
			}
		}
		g.alive.Add(-1)
		l.close()
	}
}

// connect makes the lane's connection, the first attempt at once and then with
// waits in between. It is false when the generation has ended.
func (g *generation) connect(l *lane) bool {
	for backoff := maxBackoff / 16; ; backoff = min(2*backoff, maxBackoff) {
		select {
		case g.dials <- struct{}{}:
		case <-g.context.Done():
			return false
		}
		err := g.attempt(l)
		<-g.dials
		if g.context.Err() != nil {
			return false
		}
		g.node.attempted(err)
		if err == nil {
			return true
		}
		select {
		case <-time.After(backoff):
		case <-g.context.Done():
			return false
		}
	}
}

// attempt connects and greets.
func (g *generation) attempt(l *lane) error {
	o := g.node.options
	ctx, cancel := context.WithTimeout(g.context, o.DialTimeout+outerTimeout)
	defer cancel()
	conn, err := dial(ctx, o, g.node.address)
	if err != nil {
		return err
	}
	client := newClient(o, g.node.address, conn)
	l.conn, l.broken = client.Conn(), false
	l.hangUp = func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	l.unhook = context.AfterFunc(g.context, l.hangUp)
	if err := g.node.greet(ctx, l.conn); err != nil {
		l.close()
		return err
	}
	l.proved = g.now()
	return nil
}

// prove asks an idle lane whether it still lives.
func (g *generation) prove(l *lane) error {
	ctx, cancel := context.WithTimeout(g.context, outerTimeout)
	defer cancel()
	if err := l.conn.Ping(ctx).Err(); err != nil && !fromRedis(err) {
		return err
	}
	l.proved = g.now()
	return nil
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
		if l.proved >= g.suspect.Load() {
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
	case err == nil || fromRedis(err) && replyClass(err) != "READONLY":
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

func (g *generation) now() int64 { return int64(time.Since(g.began)) }

// close ends the connection.
func (l *lane) close() {
	l.unhook()
	l.hangUp()
}
