package rulecache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/internal/pg"
)

// firstListenTimeout bounds how long the first load waits for the listener.
const firstListenTimeout = time.Second

// timing is what tests set to other values.
type timing struct {
	now     func() time.Time
	chance  func() float64
	gap     time.Duration
	backoff time.Duration
	// proof is how long a proof may take; 0: as the refresh has it.
	proof      time.Duration
	storeEvery time.Duration
	// storeSpread is over which time gateways with one storage spread their writes.
	storeSpread time.Duration
}

func defaultTiming() timing {
	return timing{
		now: time.Now, chance: rand.Float64,
		gap: 500 * time.Millisecond, backoff: 5 * time.Second,
		storeEvery: time.Minute, storeSpread: 10 * time.Second,
	}
}

// poller is the goroutine of a Source, and what it remembers between two runs.
// Its fields belong to that goroutine, but for the channels.
type poller struct {
	source  *Source
	options Options
	timing  timing

	// woken is told of changes, asked of wishes of the Source's users, and proved of
	// each proof that changes are announced.
	woken, asked chan struct{}
	// keeping is asked to write the rules down now, and closes what it is sent. Unkept
	// tells whether that may be needed.
	keeping chan chan struct{}
	unkept  atomic.Bool
	proved  chan time.Time

	pace       pace
	keeper     keeper
	mark       string
	memberMark string
	changed    time.Time // when a change became known that was not read yet; or zero
	listener   *listener
	pollOnly   fault
	stored     *storedRead // of this run; nil where the store was not asked

	observing sync.Mutex
}

func newPoller(source *Source, options Options) *poller {
	return &poller{
		source: source, options: options, timing: defaultTiming(),
		woken: make(chan struct{}, 1), asked: make(chan struct{}, 1), proved: make(chan time.Time), keeping: make(chan chan struct{}),
	}
}

// run listens and loads until ctx ends. Tried is called after the first load.
func (p *poller) run(ctx context.Context, tried func()) {
	p.pace = pace{gap: p.timing.gap, most: p.timing.backoff}
	p.keeper.every, p.keeper.spread = p.timing.storeEvery, p.timing.storeSpread
	p.restore(ctx)
	p.relisten(ctx)
	p.awaitListener(ctx)
	for {
		p.load(ctx)
		tried()
		if !p.wait(ctx) {
			break
		}
	}
	if p.listener != nil {
		p.listener.stop()
		p.listener = nil
	}
	p.flush()
}

// wake tells the poller of a change. It never blocks.
func (p *poller) wake() { signal(p.woken) }

// observe tells the observer of the settings in force.
func (p *poller) observe(event Event) {
	p.observing.Lock()
	defer p.observing.Unlock()
	event.Rules = p.source.Snapshot().Len()
	event.Rejected, _ = p.source.Snapshot().Rejected()
	p.source.settings().Observe(event)
}

// wait returns when a load is due, and false when ctx ended.
func (p *poller) wait(ctx context.Context) bool {
	chance := p.timing.chance()
	for {
		p.relisten(ctx)
		now := p.timing.now()
		due := p.pace.next(p.interval(), p.changed, chance)
		if p.source.anyoneAsks() || !due.After(now) {
			return ctx.Err() == nil
		}
		if next := p.keep(now); !next.IsZero() && next.Before(due) {
			due = next
		}
		if !p.event(ctx, due.Sub(now)) {
			return false
		}
	}
}

// announcedPolls is how many times rarer polls are while it is proved twice in each
// refresh that changes are announced.
const announcedPolls = 10

// interval returns the longest time between two polls.
func (p *poller) interval() time.Duration {
	refresh := p.source.settings().Refresh
	if p.source.listening() {
		return announcedPolls * refresh
	}
	return refresh
}

// note takes over that a change became known.
func (p *poller) note() {
	if p.changed.IsZero() {
		p.changed = p.timing.now()
	}
}

// confirm counts a proof, unless a change was announced before it.
func (p *poller) confirm(at time.Time) {
	select {
	case <-p.woken:
		p.note()
	default:
	}
	if p.changed.IsZero() {
		p.source.confirm(at)
	}
}

// event waits for the first thing that happens within the time, and notes it.
func (p *poller) event(ctx context.Context, most time.Duration) bool {
	var ended chan struct{}
	if p.listener != nil {
		ended = p.listener.done
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-p.woken:
		p.note()
	case at := <-p.proved:
		p.confirm(at)
	case <-p.asked:
	case <-ended:
		p.ended()
	case err := <-p.keeper.writing:
		p.wrote(err)
	case kept := <-p.keeping:
		p.flush()
		close(kept)
	}
	return true
}

// load loads the table once and tells everyone how it went.
func (p *poller) load(ctx context.Context) {
	asking := p.source.takeAsking()
	p.changed = time.Time{}
	select {
	case <-p.woken:
	default:
	}
	start := p.timing.now()
	found, err := p.read(ctx, len(asking) > 0)
	took := p.timing.now().Sub(start)
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		p.pace.ended(start, took, err)
		p.report(found, err, took)
	}
	for _, answer := range asking {
		if err != nil {
			answer <- fmt.Errorf("loading rules: %w", p.options.redact(err))
		} else {
			answer <- nil
		}
	}
}

// read reads the table over a connection of its own, where it is forced to also
// where the table has not changed.
func (p *poller) read(ctx context.Context, forced bool) (result, error) {
	s, err := p.dialing(nil).Connect(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	r := p.reading()
	if !forced {
		r.known, r.knownTenants = p.mark, p.memberMark
	}
	return r.read(ctx, s)
}

// reading says what to read under the settings in force.
func (p *poller) reading() reading {
	table, _ := p.options.identifier() // checked when the Source was made
	tenants, _ := p.options.tenantsIdentifier()
	return reading{table: table, tenants: tenants, maxRules: p.source.settings().MaxRules}
}

// dialing says how to connect under the settings in force.
func (p *poller) dialing(notify func()) pg.Dialing {
	return pg.Dialing{Address: p.options.address(), Refresh: p.source.settings().Refresh, Notify: notify}
}

// report puts what was read in force, and tells how it went.
func (p *poller) report(found result, err error, took time.Duration) {
	if err != nil {
		why := p.options.redact(err)
		if p.source.failed(why) {
			p.observe(Event{Kind: EventFailed, Err: why})
		}
		return
	}
	if p.pollOnly != "" && !found.pooled && !found.standby {
		// A standby was promoted, or the pooler is gone: wait listens again.
		p.setPollOnly("")
	}
	changed := (found.rules != nil || found.members != nil) && p.publish(found)
	p.mark, p.memberMark = found.mark, found.memberMark
	if p.source.succeeded(p.timing.now()) {
		p.observe(Event{Kind: EventRecovered})
	}
	if changed {
		p.observe(Event{Kind: EventLoaded, Took: took})
	}
}

// publish puts what was read in force, beside what has not changed, and reports
// whether that differs from the last.
func (p *poller) publish(found result) bool {
	if found.rules != nil && len(found.rules.kept) > 0 || found.members != nil && len(found.members.kept) > 0 {
		// What was last good of a bad row may be among what is stored.
		p.awaitStored(storeTimeout)
	} else {
		p.awaitStored(0)
	}
	last, now := p.source.Snapshot(), p.timing.now()
	snapshot := last.with(found, now)
	p.unkept.Store(true)
	p.source.publish(snapshot)
	p.keeper.changed(snapshot, now, p.timing.chance())
	p.unkept.Store(p.keeper.pending || p.keeper.writing != nil)
	return !snapshot.like(last)
}

// signal sends to a channel of capacity 1 unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
