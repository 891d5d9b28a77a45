package redisbucket

import (
	"context"
	"net"
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
	client := newConnection(o, n.address, conn)
	l := &lane{conn: conn, set: set}
	l.hangUp = func() {
		_ = client.Close()
		_ = conn.Close() // where the client has not taken it yet
	}
	l.unhook = context.AfterFunc(cs.context, l.hangUp)
	unbound := context.AfterFunc(ctx, l.hangUp)
	err = n.greet(ctx, client.Conn())
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

// ping asks whether the lane still lives.
func (l *lane) ping(deadline time.Time) error {
	var in replies
	in.expect(1, replyBase)
	if err := l.exchange(appendCommand(nil, "PING"), &in, deadline); err != nil {
		return err
	}
	if err := errorIn(in.reply(0)); err != nil && !fromRedis(err) {
		return err
	}
	return nil
}

// close ends the connection.
func (l *lane) close() {
	l.unhook()
	l.hangUp()
}
