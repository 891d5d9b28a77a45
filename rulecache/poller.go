package rulecache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// firstListenTimeout bounds how long the first load waits for the listener.
const firstListenTimeout = time.Second

// timing is what tests set to other values.
type timing struct {
	now        func() time.Time
	chance     func() float64
	gap        time.Duration
	backoff    time.Duration
	storeEvery time.Duration
}

func defaultTiming() timing {
	return timing{
		now: time.Now, chance: rand.Float64,
		gap: 500 * time.Millisecond, backoff: 5 * time.Second, storeEvery: time.Minute,
	}
}

// poller is the goroutine of a Source, and what it remembers between two runs.
// Its fields belong to that goroutine, but for the channels.
type poller struct {
	source *Source
	table  string
	timing timing

	// woken is told of notifications, asked of changes by the Source's users.
	woken, asked chan struct{}

	pace     pace
	keeper   keeper
	mark     string
	changed  bool
	listener *listener
	pollOnly fault
	stored   *storedRead // of this run; nil where the store was not asked

	observing sync.Mutex
}

func newPoller(source *Source, table string) *poller {
	return &poller{
		source: source, table: table, timing: defaultTiming(),
		woken: make(chan struct{}, 1), asked: make(chan struct{}, 1),
	}
}

// run listens and loads until ctx ends. Tried is called after the first load.
func (p *poller) run(ctx context.Context, tried func()) {
	p.pace = pace{gap: p.timing.gap, most: p.timing.backoff}
	p.keeper.every = p.timing.storeEvery
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

// storedRead is a read of the store, which runs beside the first load.
type storedRead struct {
	done chan struct{}
	hash string // of what is stored, set when done is closed
}

// restore begins to read what is stored, where no rules are known yet.
func (p *poller) restore(ctx context.Context) {
	p.stored = nil
	settings := p.source.settings()
	if settings.Store == nil || p.source.Snapshot() != nil {
		return
	}
	stored := &storedRead{done: make(chan struct{})}
	p.stored = stored
	go func() {
		defer close(stored.done)
		snapshot, err := restore(ctx, settings)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			p.observe(Event{Kind: EventStoreFailed, Err: err})
		case snapshot != nil:
			stored.hash = snapshot.hash
			if p.source.publishFirst(snapshot) {
				p.observe(Event{Kind: EventStoredUsed})
			}
		}
	}()
}

// awaitStored lets a read of the store end, for as long as that is not too long.
func (p *poller) awaitStored(most time.Duration) {
	if p.stored == nil {
		return
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.stored.done:
	case <-timer.C:
	}
	select {
	case <-p.stored.done:
		p.keeper.hash, p.stored = p.stored.hash, nil
	default:
	}
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

// wait returns when a load is due, and false when ctx ended.
func (p *poller) wait(ctx context.Context) bool {
	chance := p.timing.chance()
	for {
		p.relisten(ctx)
		now := p.timing.now()
		due := p.pace.next(p.source.settings().Refresh, p.changed, chance)
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
		p.changed = true
	case <-p.asked:
	case <-ended:
		p.ended()
	case err := <-p.keeper.writing:
		p.wrote(err)
	}
	return true
}

// keep writes the snapshot in force where that is due, and else returns when it
// will be; zero where there is nothing to write.
func (p *poller) keep(now time.Time) time.Time {
	due, pending := p.keeper.due()
	store := p.source.settings().Store
	switch {
	case !pending || store == nil:
		return time.Time{}
	case due.After(now):
		return due
	}
	p.keeper.write(store, p.source.Snapshot(), now)
	return time.Time{}
}

func (p *poller) wrote(err error) {
	p.keeper.ended(err, p.source.Snapshot())
	if err != nil {
		p.observe(Event{Kind: EventStoreFailed, Err: err})
	}
}

// load loads the table once and tells everyone how it went.
func (p *poller) load(ctx context.Context) {
	asking := p.source.takeAsking()
	p.changed = false
	select {
	case <-p.woken:
	default:
	}
	start := p.timing.now()
	found, err := p.read(ctx)
	took := p.timing.now().Sub(start)
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		p.pace.ended(start, took, err)
		p.report(found, err, took)
	}
	for _, answer := range asking {
		if err != nil {
			answer <- fmt.Errorf("loading rules: %w", redact(err))
		} else {
			answer <- nil
		}
	}
}

// read reads the table over a connection of its own.
func (p *poller) read(ctx context.Context) (result, error) {
	s, err := connect(ctx, p.source.config, nil)
	if err != nil {
		return result{}, err
	}
	defer s.close()
	return reading{table: p.table, maxRules: p.source.settings().MaxRules, known: p.mark}.read(ctx, s)
}

// report puts what was read in force, and tells how it went.
func (p *poller) report(found result, err error, took time.Duration) {
	if err != nil {
		if p.source.failed(redact(err)) {
			p.observe(Event{Kind: EventFailed, Err: redact(err)})
		}
		return
	}
	if p.pollOnly != "" && !found.pooled && !found.standby {
		// A standby was promoted, or the pooler is gone: wait listens again.
		p.setPollOnly("")
	}
	changed := found.rules != nil && p.publish(found.rules)
	p.mark = found.mark
	if p.source.succeeded(p.timing.now()) {
		p.observe(Event{Kind: EventRecovered})
	}
	if changed {
		p.observe(Event{Kind: EventLoaded, Took: took})
	}
}

// publish puts rules in force, and reports whether they differ from the last.
func (p *poller) publish(rules *builder) bool {
	if len(rules.kept) > 0 {
		// The last good rule of a bad row may be among the stored ones.
		p.awaitStored(storeTimeout)
	} else {
		p.awaitStored(0)
	}
	last := p.source.Snapshot()
	rules.keep(last)
	snapshot := rules.snapshot(p.timing.now())
	p.source.publish(snapshot)
	p.keeper.changed(snapshot)
	return last == nil || last.hash != snapshot.hash || last.rejected != snapshot.rejected
}

// flush writes what is pending, for as long as that is not too long.
func (p *poller) flush() {
	p.awaitStored(lastStoreTimeout)
	timer := time.NewTimer(lastStoreTimeout)
	defer timer.Stop()
	for {
		store := p.source.settings().Store
		if _, pending := p.keeper.due(); pending && store != nil {
			p.keeper.write(store, p.source.Snapshot(), p.timing.now())
		}
		if p.keeper.writing == nil {
			return
		}
		select {
		case err := <-p.keeper.writing:
			p.wrote(err)
			if err != nil {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// signal sends to a channel of capacity 1 unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
