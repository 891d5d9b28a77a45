package regions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// askTimeout bounds one exchange with the database.
	askTimeout = 5 * time.Second
	// jobTimeout bounds one run of the job.
	jobTimeout = 20 * time.Second
	// leaveTimeout bounds the good-bye.
	leaveTimeout = 2 * time.Second
	// firstBackoff is the wait after a first failure; each further one doubles it.
	firstBackoff = 500 * time.Millisecond
	// joinPoll is how often a region looks that was not given anything yet.
	joinPoll = time.Second
	// reported is how many limits one report tells of at most.
	reported = 256
)

// poller is the goroutine of a Source.
type poller struct {
	source *Source
	tried  func() // called when the shares were asked for once

	failures  int
	jobFailed string // why the job failed last
	unsaid    []Demand
	reported  time.Time // until when what was counted is told
	stored    Share     // what the store holds
	settings  Settings
	told      bool // that no share is known
	shown     *Shares
}

// run polls until ctx ends, and then takes the gateway back.
func (p *poller) run(ctx context.Context) {
	p.refresh()
	p.restore(ctx)
	p.reported = p.source.member.now()
	for {
		p.poll(ctx)
		if p.failures == 0 && p.work(ctx) {
			p.poll(ctx) // a region that is the first has its shares from its own job
		}
		p.tried()
		if !p.wait(ctx) {
			break
		}
	}
	p.leave()
	p.source.database.Close()
}

// refresh takes over the settings in force. A decision that began under a longer
// drain keeps that.
func (p *poller) refresh() {
	p.settings = p.source.settings()
	p.source.member.drain = max(p.source.member.drain, p.settings.Drain)
}

// wait returns false when ctx ended.
func (p *poller) wait(ctx context.Context) bool {
	timer := time.NewTimer(p.pause(rand.Float64())) //nolint:gosec // jitter is no secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		p.refresh()
		return true
	}
}

// pause is how long after a look the next one is. Chance, from 0 to below 1, keeps
// gateways from looking in step.
func (p *poller) pause(chance float64) time.Duration {
	member := &p.source.member
	most := min(p.settings.Refresh, member.valid/4)
	switch {
	case p.failures > 0:
		most = min(most, firstBackoff<<min(p.failures-1, 4))
	case member.owes():
		// What was read is acknowledged as soon as nothing older is in use, and no
		// sooner: a look before that would leave it to the one after.
		most = min(most, member.drain-member.now().Sub(member.adopted))
		return max(0, most) + 10*time.Millisecond
	case p.source.Shares().all <= Unknown:
		most = min(most, joinPoll)
	}
	return most - time.Duration(chance*0.2*float64(most)) + 10*time.Millisecond
}

// poll asks for the shares once and tells how it went.
func (p *poller) poll(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	changed, err := p.source.member.poll(bounded)
	if ctx.Err() != nil {
		return
	}
	news := p.source.noteFault(err)
	lapsed, lapse := p.source.member.lapse()
	if err != nil {
		p.failures++
		p.failed(err, news, lapsed && lapse)
		return
	}
	if p.failures > 0 {
		p.observe(Event{Kind: EventRecovered})
	}
	p.failures = 0
	if changed {
		if fresh := p.source.member.force.Load().fresh; !fresh.gives(p.shown) {
			p.shown = fresh
			p.observe(Event{Kind: EventShares})
		}
		p.keep(ctx)
	}
}

// failed tells of a failure, and of what that means for requests.
func (p *poller) failed(err error, news, lapsed bool) {
	if news {
		p.observe(Event{Kind: EventFailed, Err: err})
	}
	switch {
	case lapsed:
		p.observe(Event{Kind: EventLapsed, Err: err})
	case p.source.member.known == 0 && !p.told:
		p.told = true
		kind := EventUnknown
		if p.stored > 0 {
			kind = EventStored
		}
		p.observe(Event{Kind: kind, Err: err})
	}
}

// work reports the demand and runs the job, and tells whether that moved shares.
func (p *poller) work(ctx context.Context) (moved bool) {
	err := p.report(ctx)
	var made *Changes
	if err == nil {
		made, err = p.job(ctx)
	}
	if ctx.Err() != nil {
		return false
	}
	p.jobFault(err)
	if moved = made != nil && (len(made.Limits) > 0 || len(made.Deleted) > 0); moved {
		p.observe(Event{Kind: EventMoved, Changes: made})
	}
	return moved
}

// report tells the database what was asked, and in which time. What it did not take
// is told again.
func (p *poller) report(ctx context.Context) error {
	now := p.source.member.now()
	demand := merged(append(p.unsaid, p.source.counter.drain(reported)...), reported)
	told := append(slices.Clone(demand), Demand{Key: Elapsed(), Units: float64(max(0, now.Sub(p.reported)).Milliseconds())})
	p.unsaid = nil
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := p.source.database.Report(ctx, p.source.member.region, told); err != nil {
		p.unsaid = demand
		return fmt.Errorf("reporting the demand: %w", err)
	}
	p.reported = now
	return nil
}

// job runs the job once, where this gateway is to.
func (p *poller) job(ctx context.Context) (*Changes, error) {
	if p.settings.Rebalance < 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	return Job{Books: p.source.database, Every: p.settings.Rebalance}.Run(ctx)
}

// jobFault tells of a failure that is news.
func (p *poller) jobFault(err error) {
	before := p.jobFailed
	p.jobFailed = ""
	if err == nil {
		return
	}
	if p.jobFailed = err.Error(); p.jobFailed != before {
		p.observe(Event{Kind: EventJobFailed, Err: err})
	}
}

// leave takes the gateway back once nothing goes by its shares any more, so that
// they can be given to others at once.
func (p *poller) leave() {
	m := &p.source.member
	known, floor := m.known, m.force.Load().fresh.floor()
	m.start(floor)
	if known == 0 && p.failures > 0 {
		return
	}
	time.Sleep(min(m.drain, leaveTimeout)) // decisions that are under way
	if m.drain > leaveTimeout {
		return // they may go on: others wait for the shares to be out of use
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = m.reader.Leave(ctx, m.id) // what it does not reach goes by the gateway's age
}

// kept is what the store holds.
type kept struct {
	Region string `json:"region"`
	Safe   Share  `json:"safe"`
}

// restore puts the safe share of an earlier run in force, where nothing is known.
func (p *poller) restore(ctx context.Context) {
	if p.settings.Store == nil || p.source.member.known != 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	value, err := p.settings.Store.Load(bounded)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		p.observe(Event{Kind: EventStoreFailed, Err: fmt.Errorf("loading the safe share: %w", err)})
		return
	}
	var found kept
	if err := json.Unmarshal(value, &found); err != nil {
		p.observe(Event{Kind: EventStoreFailed, Err: fmt.Errorf("decoding the safe share: %w", err)})
		return
	}
	if found.Region == p.source.member.region && found.Safe >= Unknown && found.Safe <= Budget {
		p.stored = found.Safe
		p.source.member.start(found.Safe)
	}
}

// keep stores the safe share where it is another.
func (p *poller) keep(ctx context.Context) {
	safe := p.source.member.force.Load().fresh.floor()
	if p.settings.Store == nil || safe == p.stored || safe <= Unknown && p.stored == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	value, err := json.Marshal(kept{Region: p.source.member.region, Safe: safe})
	if err == nil {
		err = p.settings.Store.Save(bounded, value)
	}
	if err != nil {
		p.observe(Event{Kind: EventStoreFailed, Err: fmt.Errorf("keeping the safe share: %w", err)})
		return
	}
	p.stored = safe
}

func (p *poller) observe(event Event) {
	shares := p.source.Shares()
	event.Share, event.Limits = shares.All(), shares.Len()
	p.settings.Observe(event)
}
