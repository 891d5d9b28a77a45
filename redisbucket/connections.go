package redisbucket

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastLanes are kept while there is little to do: one for each of two calls,
	// and one for resets and while another is asked or made anew.
	leastLanes = leastSenders + 1
	// mostLanes are made where there is more to do.
	mostLanes = mostSenders + 4
	// dialsAtOnce is how many lanes connect at the same time.
	dialsAtOnce = 2
	// pingEvery is after how long without an answer an idle lane is asked.
	pingEvery = 2 * time.Second
	// trimEvery is how often lanes are closed that were not needed meanwhile.
	trimEvery = 10 * time.Second
	// maxBackoff is the longest wait between two attempts to connect.
	maxBackoff = 5 * time.Second
	// leastPing and mostPing bound how long is waited for the answer to a PING:
	// pingTimeouts times what a decision may wait.
	leastPing    = 50 * time.Millisecond
	mostPing     = time.Second
	pingTimeouts = 10
	// overdueAfter times what connecting usually takes, or what a request waits at
	// most, if that is more, is when an attempt is a bad sign.
	overdueAfter = 4
)

// connections are those of a node during a run: a few, more while more are asked
// for, all connected before they are needed. One goroutine, the keeper, has them
// made, proved and closed.
type connections struct {
	node     *node
	run      *run
	context  context.Context // the run's life, not a caller's
	began    time.Time
	idle     chan *lane
	doubtful chan *lane    // they are to be asked whether they live
	look     chan struct{} // the keeper is to look what there is to do

	set     atomic.Int64 // the lanes of which set are wanted
	least   atomic.Int64 // those of sets before this are not used any more
	suspect atomic.Int64 // lanes that answered last before this are to be asked first
	alive   atomic.Int64 // lanes that are connected
	lent    atomic.Int64
	peak    atomic.Int64 // the most that were wanted at once since they were trimmed
	wanted  atomic.Bool  // somebody asked, and there was none

	mu       sync.Mutex
	current  int64 // lanes of the wanted set that are connected
	dialling int
	trying   time.Time // when the oldest attempt under way began; zero where there is none
	tried    time.Time // when the last attempt began
	failures int       // attempts in a row that failed
	ended    bool      // an attempt has ended
	failed   error     // why the last attempt failed, nil where it did not
	usual    time.Duration
	trimmed  time.Time
	demoted  time.Time
}

func newConnections(r *run) *connections {
	return &connections{
		node: r.node, run: r, context: r.context, began: time.Now(), trimmed: time.Now(),
		idle: make(chan *lane, 4*mostLanes), doubtful: make(chan *lane, 4*mostLanes), look: make(chan struct{}, 1),
	}
}

// keep looks after the connections until the run ends.
func (cs *connections) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-cs.look:
		case <-cs.node.circuit.opened:
			cs.run.senders.turnAway(errOpen, everyone)
			if cs.node.circuit.transport.Load() {
				cs.renew()
			}
		case <-cs.context.Done():
			return
		}
		cs.trim()
		cs.prove()
		timer.Reset(cs.dial())
	}
}

// dial begins the attempts that are due, and returns when to look again.
func (cs *connections) dial() time.Duration {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	again := min(cs.pause(), pingEvery/leastLanes)
	for cs.current+int64(cs.dialling) < cs.target() && cs.dialling < cs.atOnce() {
		if wait := time.Until(cs.due()); wait > 0 {
			return min(wait, again)
		}
		cs.tried = time.Now()
		cs.wanted.Store(false)
		if cs.dialling++; cs.dialling == 1 {
			cs.trying = cs.tried
		}
		began := cs.tried
		cs.run.wait.Go(func() { cs.attempt(began) })
	}
	return again
}

// target is how many lanes there are to be. While the breaker is not closed that
// is one, for who probes.
func (cs *connections) target() int64 {
	if !cs.node.circuit.closed() {
		return 1
	}
	return min(max(cs.peak.Load(), leastLanes), mostLanes)
}

func (cs *connections) atOnce() int {
	if cs.failures > 0 {
		return 1
	}
	return dialsAtOnce
}

// pause is the least time between attempts that fail: two fit into the time that
// the breaker stays open.
func (cs *connections) pause() time.Duration { return min(cs.node.circuit.open, time.Second) }

// due is when the next attempt may begin: after some that failed later and later,
// unless somebody asks meanwhile.
func (cs *connections) due() time.Time {
	if cs.failures == 0 {
		return time.Time{}
	}
	wait := cs.pause()
	if cs.failures > 1 && !cs.wanted.Load() {
		wait = min(wait<<min(cs.failures-1, 10), max(maxBackoff, wait))
	}
	return cs.tried.Add(wait)
}

// attempt makes one lane.
func (cs *connections) attempt(began time.Time) {
	l, err := cs.connect()
	if cs.context.Err() != nil {
		if l != nil {
			l.close()
		}
		return
	}
	cs.mu.Lock()
	cs.ended, cs.failed = true, nil
	if cs.dialling--; cs.dialling == 0 {
		cs.trying = time.Time{}
	}
	if err != nil {
		cs.failures++
		cs.failed = fmt.Errorf("%w: %w", errConnection, err)
	} else {
		cs.connected(l, time.Since(began))
	}
	failed := cs.failed
	cs.mu.Unlock()
	cs.node.attempted(cs.run, err, failed)
	if l != nil {
		cs.idle <- l
	}
	signal(cs.look)
}

// connected counts a new lane. It is called with mu held.
func (cs *connections) connected(l *lane, took time.Duration) {
	cs.failures = 0
	if cs.usual == 0 {
		cs.usual = took
	}
	cs.usual += (took - cs.usual) / meanOver
	cs.alive.Add(1)
	if l.set == cs.set.Load() {
		cs.current++
	}
}

// discard closes a lane.
func (cs *connections) discard(l *lane) {
	l.close()
	cs.mu.Lock()
	cs.alive.Add(-1)
	if l.set == cs.set.Load() {
		cs.current--
	}
	cs.mu.Unlock()
	signal(cs.look)
}

// renew has a lane made that nobody has used, as soon as one lives in place of all
// that there are.
func (cs *connections) renew() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.set.Add(1)
	cs.current = 0
}

// demote notes that the server is no master: all lanes lead there, and only new
// ones to its successor. Where there is none yet, new lanes do no better, and are
// made anew together only so often.
func (cs *connections) demote(l *lane) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if l.set < cs.least.Load() || time.Since(cs.demoted) < cs.pause() {
		return
	}
	cs.demoted = time.Now()
	cs.least.Store(cs.set.Add(1))
	cs.current = 0
}

// outdated reports whether a lane is not to be used: there are newer ones, or it
// leads to a server that is no master.
func (cs *connections) outdated(l *lane) bool {
	if l.set == cs.set.Load() {
		return false
	}
	if l.set < cs.least.Load() {
		return true
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.current > 0
}

// trim closes idle lanes that are outdated, and those that were not needed for a
// while.
func (cs *connections) trim() {
	cs.mu.Lock()
	due := time.Since(cs.trimmed) >= trimEvery
	if due {
		cs.trimmed = time.Now()
		cs.peak.Store(cs.lent.Load())
	}
	due = due || cs.alive.Load() != cs.current
	cs.mu.Unlock()
	if !due {
		return
	}
	for range len(cs.idle) {
		select {
		case l := <-cs.idle:
			if cs.outdated(l) || cs.alive.Load() > cs.keeping() {
				cs.discard(l)
			} else {
				cs.idle <- l
			}
		default:
			return
		}
	}
}

// keeping is how many lanes are kept when they are trimmed: one more than at least
// are, so that little work does not make and close lanes all the time.
func (cs *connections) keeping() int64 { return max(cs.peak.Load(), leastLanes) + 1 }

// prove asks those idle lanes whether they live that have not answered for a
// while. The longest idle lane is the channel's first.
func (cs *connections) prove() {
	for range len(cs.doubtful) {
		cs.check(<-cs.doubtful) // nobody else receives
	}
	for range len(cs.idle) {
		select {
		case l := <-cs.idle:
			if l.proved >= cs.suspect.Load() && cs.now()-l.proved < int64(pingEvery) {
				cs.idle <- l
				return
			}
			cs.check(l)
		default:
			return
		}
	}
}

// check asks a lane whether it lives, and lends it again if it does.
func (cs *connections) check(l *lane) {
	cs.run.wait.Go(func() {
		began := time.Now()
		if err := l.ping(began.Add(cs.node.pingTimeout())); err != nil {
			if cs.context.Err() == nil {
				cs.suspect.Store(cs.now()) // what keeps one from answering may keep the others
				cs.node.unanswered(began, err)
			}
			cs.discard(l)
			return
		}
		l.proved = cs.now()
		cs.idle <- l
	})
}

func (cs *connections) now() int64 { return int64(time.Since(cs.began)) }
