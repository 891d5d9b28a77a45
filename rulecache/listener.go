package rulecache

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
		l.poller.source.setListening(false)
		l.attempted()
		if ctx.Err() != nil {
			return
		}
		if why := redact(err); why == errPooler || why == errStandby {
			l.why = why
			return
		}
		// One that was lost at once is as bad as one that was never made.
		if !l.since.IsZero() && time.Since(l.since) > l.poller.timing.backoff {
			failures = 0
		}
		if failures == 0 {
			l.poller.observe(Event{Kind: EventListenLost, Err: redact(err)})
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
	s, err := l.poller.dialing(l.poller.wake).connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	if err := l.subscribe(ctx, s); err != nil {
		return err
	}
	l.since = time.Now()
	l.poller.source.setListening(true)
	l.poller.observe(Event{Kind: EventListening})
	l.poller.wake()
	l.attempted()
	for {
		if err := l.await(ctx, s); err != nil {
			return err
		}
	}
}

// subscribe makes sure that notifications can arrive, and asks for them.
func (l *listener) subscribe(ctx context.Context, s *session) error {
	pooled := false
	err := s.query(ctx, "SELECT pg_backend_pid()", s.patience, func(_ int, values [][]byte) {
		pooled = string(values[0]) != strconv.FormatUint(uint64(s.conn.PID()), 10)
	})
	switch {
	case err != nil:
		return err
	case pooled:
		return errPooler
	}
	err = s.query(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize(), s.patience, func(int, [][]byte) {})
	var answer *pgconn.PgError
	if errors.As(err, &answer) && answer.Code == standbyCode {
		return errStandby
	}
	return err
}

// await waits for notifications until it is time to see whether the connection
// is alive, and sees. A connection that is half open gives no sign by itself.
func (l *listener) await(ctx context.Context, s *session) error {
	refresh := l.poller.source.settings().Refresh
	quiet, cancel := context.WithTimeout(ctx, spread(refresh, 0))
	defer cancel()
	for quiet.Err() == nil {
		if err := s.conn.WaitForNotification(quiet); err != nil && (quiet.Err() == nil || s.conn.IsClosed()) {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancelPing := context.WithTimeout(ctx, pingTimeout)
	defer cancelPing()
	return s.conn.Ping(ctx)
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
	p.source.setPollOnly(string(why))
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
