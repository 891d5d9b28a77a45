package redisbucket

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// lane is one connection. Whoever received it from the idle channel, or its
// keeper, owns it; nobody else touches it.
type lane struct {
	conn   *redis.Conn
	hangUp func()        // closes the connection, whoever uses it
	unhook func() bool   // forgets to hang up when the generation ends
	made   int64         // when it was connected, in ns since the generation began
	proved int64         // when it last answered, likewise
	broken bool          // it must be made anew
	back   chan struct{} // to its keeper: it is broken, or is to be checked
}

const (
	// laneCount is how many connections a node keeps: one for each sender, and some
	// for resets and while others are checked or made anew.
	laneCount = mostSenders + 4
	// dialsAtOnce is how many lanes connect at the same time.
	dialsAtOnce = 2
	// checkEvery is after how long without an answer an idle lane is asked.
	checkEvery = 500 * time.Millisecond
	// checksPerRound of the idle lanes are asked at once, so that most stay free.
	checksPerRound = laneCount / 4
	// maxBackoff is the longest wait between two attempts to connect a lane.
	maxBackoff = 500 * time.Millisecond
)

// keep connects a lane, lends it, and makes it anew when it is broken. When the
// generation ends the lane may be lent, so that it is not touched.
func (g *generation) keep(l *lane) {
	for g.connect(l) {
		g.alive.Add(1)
		for healthy := true; healthy; healthy = !l.broken && !g.outlived(l) && g.prove(l) == nil {
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
	o := g.node.client.options
	ctx, cancel := context.WithTimeout(g.context, o.DialTimeout+outerTimeout)
	defer cancel()
	conn, err := dial(ctx, o, g.node.address)
	if err != nil {
		return err
	}
	client := newConnection(o, g.node.address, conn)
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
	l.made = g.now()
	l.proved = l.made
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

// close ends the connection.
func (l *lane) close() {
	l.unhook()
	l.hangUp()
}
