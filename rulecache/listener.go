package rulecache

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddygate/ratelimit/internal/pg"
)

// standbyCode is how a standby refuses LISTEN.
const standbyCode = "25006"

// listener keeps one connection that listens. It tells its poller of every
// notification, and of every time that it begins to listen, because changes
// before that were missed.
type listener struct {
	poller  *poller
	channel string
	cancel  context.CancelFunc

	// tried is closed when the first attempt to listen has ended.
	tried chan struct{}
	// done is closed when the listener has ended, and why is set by then: empty
	// where it was stopped, else why it can never listen.
	done chan struct{}
	why  fault

	// since is when the connection began to listen; zero where it never did.
	since time.Time
}

// listen starts a listener.
func (p *poller) listen(ctx context.Context, channel string) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{
		poller: p, channel: channel, cancel: cancel,
		tried: make(chan struct{}), done: make(chan struct{}),
	}
	go l.run(ctx)
	return l
}

// stop ends the listener and waits until it has.
func (l *listener) stop() {
	l.cancel()
	<-l.done
}

// run listens, and again each time that it fails: at once, and then ever later.
func (l *listener) run(ctx context.Context) {
	defer close(l.done)
	defer l.cancel()
	failures := 0
	for {
		l.since = time.Time{}
		err := l.serve(ctx)
		if l.poller.source.setListening(false, "") {
			l.poller.wake() // it is polled at once, and then as often as without
		}
		l.attempted()
		if ctx.Err() != nil {
			return
		}
		why := l.poller.options.redact(err)
		if why == errPooler || why == errStandby {
			l.why = why
			return
		}
		// One that was lost at once is as bad as one that was never made.
		if !l.since.IsZero() && time.Since(l.since) > l.poller.timing.backoff {
			failures = 0
		}
		if failures == 0 {
			l.poller.observe(Event{Kind: EventListenLost, Err: why})
		}
		if !sleep(ctx, spread(backoff(failures, l.poller.timing.backoff), l.poller.timing.chance())) {
			return
		}
		failures++
	}
}

// attempted lets the poller go on after the first attempt.
func (l *listener) attempted() {
	select {
	case <-l.tried:
	default:
		close(l.tried)
	}
}

// serve makes one connection and listens on it until it fails.
func (l *listener) serve(ctx context.Context) error {
	s, err := l.poller.dialing(l.poller.wake).Connect(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := l.subscribe(ctx, s); err != nil {
		return err
	}
	l.since = time.Now()
	l.poller.wake() // changes from before were missed
	for {
		if err := l.prove(ctx, s); err != nil {
			return err
		}
		l.attempted()
		if err := l.await(ctx, s); err != nil {
			return err
		}
	}
}

// subscribe makes sure that notifications can arrive, and asks for them.
func (l *listener) subscribe(ctx context.Context, s *pg.Session) error {
	pooled := false
	err := s.Query(ctx, "SELECT pg_backend_pid()", s.Patience, func(_ int, values [][]byte) {
		pooled = string(values[0]) != strconv.FormatUint(uint64(s.Conn.PID()), 10)
	})
	switch {
	case err != nil:
		return err
	case pooled:
		return errPooler
	}
	err = s.Query(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize(), s.Patience, func(int, [][]byte) {})
	if answer, found := errors.AsType[*pgconn.PgError](err); found && answer.Code == standbyCode {
		return errStandby
	}
	return err
}

// proofsPerRefresh is how often, in each refresh, it is proved that changes are
// announced; each proof may take half the time until the next.
const proofsPerRefresh = 2

// prove asks, on the connection itself, whether it is alive, the table can be read,
// and its trigger notifies the channel. What PostgreSQL then says of the table is
// told, and no reason to give the connection up.
func (l *listener) prove(ctx context.Context, s *pg.Session) error {
	began := l.poller.timing.now()
	r := l.poller.reading()
	r.channel = l.channel
	found, err := r.describe(ctx, s, l.patience())
	why := fault("")
	answer, refused := errors.AsType[*pgconn.PgError](err)
	switch _, lacking := errors.AsType[fault](err); {
	case refused && answer.SeverityUnlocalized != "FATAL" || lacking:
		why = l.poller.options.redact(err)
	case err != nil:
		return err
	case !found.announced:
		why = errUnannounced(l.channel)
	}
	if l.poller.source.setListening(why == "", why) {
		l.tell(why)
	}
	if why != "" {
		return nil
	}
	select {
	case l.poller.proved <- began:
	default: // a load is under way, which is as good
	}
	return nil
}

// tell tells that changes are announced from now on, or that they are not. A table
// that cannot be read is told of by the poll that follows.
func (l *listener) tell(why fault) {
	if why == "" {
		l.poller.observe(Event{Kind: EventListening})
		return
	}
	l.poller.wake() // the table is polled at once
	if why == errUnannounced(l.channel) {
		l.poller.observe(Event{Kind: EventPollOnly, Err: why})
	}
}

// patience is how long a proof may take.
func (l *listener) patience() time.Duration {
	if most := l.poller.timing.proof; most > 0 {
		return most
	}
	return l.poller.source.settings().Refresh / (2 * proofsPerRefresh)
}

// await waits for notifications until it is time for the next proof. A connection
// that is half open gives no sign by itself.
func (l *listener) await(ctx context.Context, s *pg.Session) error {
	refresh := l.poller.source.settings().Refresh
	quiet, cancel := context.WithTimeout(ctx, spread(refresh/proofsPerRefresh, l.poller.timing.chance()))
	defer cancel()
	for quiet.Err() == nil {
		if err := s.Conn.WaitForNotification(quiet); err != nil && (quiet.Err() == nil || s.Conn.IsClosed()) {
			return err
		}
	}
	return ctx.Err()
}

// relisten makes the listener what the settings ask for.
func (p *poller) relisten(ctx context.Context) {
	settings := p.source.settings()
	if p.listener != nil && (settings.ListenOff || settings.Channel != p.listener.channel) {
		p.listener.stop()
		p.listener = nil
	}
	if settings.ListenOff {
		p.setPollOnly("")
		return
	}
	if p.listener == nil && p.pollOnly == "" {
		p.listener = p.listen(ctx, settings.Channel)
	}
}

// awaitListener lets the first attempt to listen end before the first load, so
// that nothing is missed between the two, and no second load is needed.
func (p *poller) awaitListener(ctx context.Context) {
	if p.listener == nil {
		return
	}
	timer := time.NewTimer(firstListenTimeout)
	defer timer.Stop()
	select {
	case <-p.listener.tried:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ended notes why the listener ended by itself.
func (p *poller) ended() {
	why := p.listener.why
	p.listener = nil
	p.setPollOnly(why)
	if why != "" {
		p.observe(Event{Kind: EventPollOnly, Err: why})
	}
}

func (p *poller) setPollOnly(why fault) {
	p.pollOnly = why
	p.source.setListening(false, why)
}

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
