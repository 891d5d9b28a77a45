package redisbucket

import (
	"context"
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
