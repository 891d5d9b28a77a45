package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// mostPast bounds how many members a process asks Redis to forget at once: those
// that it was while no heartbeat was answered.
const mostPast = 8

// run keeps the heartbeat until ctx ends, and leaves then.
func (h *Heartbeat) run(ctx context.Context, _ func()) {
	h.mu.Lock()
	h.alone = h.clock()
	h.mu.Unlock()
	timer := time.NewTimer(h.rhythm.interval)
	defer timer.Stop()
	for ctx.Err() == nil {
		h.beat(ctx)
		timer.Reset(h.times().next())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-h.wake:
		}
	}
	h.leave()
}

// beatNow has the goroutine not wait for the next heartbeat.
func (h *Heartbeat) beatNow() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// fleetOfASecond is how many keep their heartbeat each interval. Of more, all times
// are as many times longer as there are thousands, so that Redis has no more to do;
// the script's expiry goes by the same number.
const fleetOfASecond = 1000

// of returns the times in a fleet of n processes.
func (r rhythm) of(n int64) rhythm {
	times := max(1, float64(n)/fleetOfASecond)
	longer := func(d time.Duration) time.Duration { return time.Duration(float64(d) * times) }
	return rhythm{longer(r.interval), longer(r.expiry), longer(r.hold), r.disagree + longer(r.interval) - r.interval}
}

// times returns those for what was counted last, as the script has them.
func (h *Heartbeat) times() rhythm {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rhythm.of(h.fleet.Counted)
}

// next is the time until the next heartbeat, so that those of many processes that
// started together spread.
func (r rhythm) next() time.Duration {
	return r.interval*9/10 + rand.N(r.interval/5+1) //nolint:gosec // nothing depends on who can guess it
}

func (h *Heartbeat) beat(ctx context.Context) {
	user := h.work.Settings()
	within, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	reply, err := h.ask(within, user.redis, user.rules()+"/"+h.id)
	if ctx.Err() != nil {
		return // a stop says nothing about Redis
	}
	fleet := Status{ID: h.id}
	if err == nil {
		err = fleet.read(reply)
	}
	h.note(fleet, err)
}

// leave makes Redis forget this process.
func (h *Heartbeat) leave() {
	if len(h.past) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), heartbeatTimeout)
	defer cancel()
	// Who cannot leave is forgotten after the expiry.
	_, _ = h.ask(ctx, h.work.Settings().redis, "")
}

// ask runs the script: this process is member from now on, or leaves. What it was
// before is forgotten, also where an answer was lost on the way.
func (h *Heartbeat) ask(ctx context.Context, redis Redis, member string) (any, error) {
	args := append([]any{h.rhythm.expiry.Milliseconds(), member}, h.past...)
	if member != "" && !slices.Contains(h.past, any(member)) {
		h.past = append(h.past, member)
		h.past = h.past[max(0, len(h.past)-mostPast):]
	}
	reply, err := redis.Eval(ctx, h.script, h.keys, args...)
	if err != nil {
		return nil, fmt.Errorf("keeping the heartbeat: %w", err)
	}
	h.past = h.past[:0]
	if member != "" {
		h.past = append(h.past, member)
	}
	return reply, nil
}

// note keeps what a heartbeat brought, and tells what that changes.
func (h *Heartbeat) note(answer Status, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	user := h.work.Settings()
	if err != nil {
		h.missed(user, err)
		return
	}
	h.answered(user, answer)
}

func (h *Heartbeat) missed(user user, err error) {
	h.count.missed()
	h.disagree.missed()
	h.fleet.LastReason = user.reason(err)
	if !h.lost && h.clock().Sub(h.alone) > h.rhythm.of(h.fleet.Counted).expiry {
		h.lost = true
		user.tell(Event{Kind: HeartbeatLost, Status: h.fleetNow()})
	}
}

func (h *Heartbeat) answered(user user, answer Status) {
	now, was := h.clock(), h.count.inForce
	h.count.counted(answer.Counted, user.options.Until, now, h.rhythm.of(answer.Counted))
	h.inForce.Store(h.count.inForce)
	h.alone = now
	answer.Instances, answer.Answered = h.count.inForce, now
	h.fleet = answer
	if h.lost {
		h.lost = false
		user.tell(Event{Kind: HeartbeatBack, Status: h.fleetNow()})
	}
	if was != h.count.inForce {
		user.tell(Event{Kind: InstancesChanged, Status: h.fleetNow(), Was: was})
	}
	if kind := h.disagree.seen(answer.Disagree() > 0, now, h.rhythm.disagree); kind != 0 {
		user.tell(Event{Kind: kind, Status: h.fleetNow()})
	}
}
