package redisbucket

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"
)

// lane is one connection. Whoever received it from the idle channel owns it;
// nobody else touches it.
type lane struct {
	conn   net.Conn
	hangUp func()      // closes the connection, whoever uses it
	unhook func() bool // forgets to hang up when the run ends
	set    int64       // the set of connections that it was made for
	proved int64       // when it last answered, in ns since the run began
}

// connect makes a lane: it connects and greets, within the dial timeout in all.
func (cs *connections) connect() (*lane, error) {
	n := cs.node
	o := n.client.options
	ctx, cancel := context.WithTimeout(cs.context, o.DialTimeout)
	defer cancel()
	set := cs.set.Load()
	conn, err := dial(ctx, o, n.address)
	if err != nil {
		return nil, err
	}
	// The client logs in and asks who is there. From then on the connection is
	// used without it: a decision is one write and one read.
	first := &hearing{Conn: conn}
	client := newConnection(o, n.address, first)
	l := &lane{conn: conn, set: set}
	l.hangUp = func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	l.unhook = context.AfterFunc(cs.context, l.hangUp)
	unbound := context.AfterFunc(ctx, l.hangUp)
	err = first.explained(n.greet(ctx, client.Conn()))
	if err == nil {
		err = l.choose(n.address.db, o.DialTimeout)
	}
	if !unbound() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.proved = cs.now()
	return l, nil
}

// choose makes sure of the database: the client has chosen it, too, but what it was
// told is lost among what is asked of a server that it greets.
func (l *lane) choose(db int, within time.Duration) error {
	if db == 0 {
		return nil
	}
	return l.ask(time.Now().Add(within), "SELECT", strconv.Itoa(db))
}

// ping asks whether the lane still lives. Any reply says that it does.
func (l *lane) ping(deadline time.Time) error {
	if err := l.ask(deadline, "PING"); err != nil && !fromRedis(err) {
		return err
	}
	return nil
}

// ask sends one command, of which only matters whether it fails.
func (l *lane) ask(deadline time.Time, words ...string) error {
	var in replies
	in.expect(1, replyBase)
	if err := l.exchange(appendCommand(nil, words...), &in, deadline); err != nil {
		return err
	}
	return errorIn(in.reply(0))
}

// close ends the connection.
func (l *lane) close() {
	l.unhook()
	l.hangUp()
}

// want has the keeper try to connect soon, where nothing is connected.
func (cs *connections) want() {
	if cs.alive.Load() == 0 && !cs.wanted.Load() {
		cs.wanted.Store(true)
		signal(cs.look)
	}
}

// borrow returns an idle lane, and waits for one until deadline. Its error is one
// of missing where there is none and it is not to be expected, else of who leaves.
func (cs *connections) borrow(ctx context.Context, deadline time.Time) (*lane, error) {
	for {
		l, err := cs.next(ctx, deadline)
		switch {
		case err != nil:
			return nil, err
		case cs.outdated(l):
			cs.discard(l)
		case l.proved < cs.suspect.Load():
			cs.doubtful <- l
			signal(cs.look)
		default:
			cs.lend()
			return l, nil
		}
	}
}

// lend counts a lane that is lent.
func (cs *connections) lend() {
	if lent := cs.lent.Add(1); lent > cs.peak.Load() {
		cs.peak.Store(lent)
	}
}

func (cs *connections) next(ctx context.Context, deadline time.Time) (*lane, error) {
	select {
	case l := <-cs.idle:
		return l, nil
	default:
	}
	if alive := cs.alive.Load(); alive < mostLanes && cs.lent.Load() >= alive {
		cs.peak.Store(max(cs.peak.Load(), alive+1))
		signal(cs.look)
	}
	budget := time.Until(deadline)
	for {
		until, err := cs.hopeless()
		if err != nil {
			return nil, err
		}
		if until.IsZero() || until.After(deadline) {
			until = deadline
		}
		l, err := cs.await(ctx, until)
		switch {
		case l != nil && time.Until(deadline) < budget/4:
			// Too little is left for an answer: asking would cost the tokens, the
			// connection, and count as Redis' failure.
			cs.idle <- l
			return nil, errWait
		case l != nil, err != nil:
			return l, err
		case !until.Before(deadline):
			if _, err := cs.hopeless(); err != nil {
				return nil, err
			}
			return nil, errWait
		}
	}
}

// await waits for an idle lane until a time. It returns neither a lane nor an
// error when that has come.
func (cs *connections) await(ctx context.Context, until time.Time) (*lane, error) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case l := <-cs.idle:
		return l, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-cs.context.Done():
		return nil, errWait
	case <-timer.C:
		return nil, nil
	}
}

// hopeless returns why no lane is to be expected soon: none is connected, and the
// last attempt failed, or the one under way takes too long, but for the first of
// a run. Until is when that may be so next.
func (cs *connections) hopeless() (until time.Time, err error) {
	if cs.alive.Load() > 0 {
		return until, nil
	}
	cs.want()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case cs.failed != nil:
		return until, cs.failed
	case !cs.ended || cs.trying.IsZero():
		return until, nil
	}
	until = cs.trying.Add(overdueAfter * max(cs.usual, time.Duration(cs.node.patience.Load())))
	if !time.Now().Before(until) {
		return until, errOverdue
	}
	return until, nil
}

// missing reports whether err says that there is no lane to ask on, which counts
// like a call that failed.
func missing(err error) bool { return errors.Is(err, errConnection) }

// giveBack ends a loan after a call.
func (cs *connections) giveBack(l *lane, c *call) {
	if !c.asked {
		cs.unused(l)
		return
	}
	cs.lent.Add(-1)
	err := c.err
	class := replyClass(err)
	switch {
	case class == "READONLY" || class == "MASTERDOWN":
		cs.demote(l)
		cs.discard(l)
	case err == nil || fromRedis(err):
		l.proved = cs.now()
		cs.idle <- l
	case Reason(err) == "connection":
		// What cut this connection may have cut the others: none is lent again
		// before it has answered.
		cs.suspect.Store(cs.now())
		cs.discard(l)
	default:
		cs.discard(l)
	}
}

// unused ends a loan, if it is one, that nothing was asked on.
func (cs *connections) unused(l *lane) {
	if l != nil {
		cs.lent.Add(-1)
		cs.idle <- l
	}
}
