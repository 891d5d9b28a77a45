package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// spot is a cell's place in its plan.
type spot struct{ group, cell int }

// measure does what the plan says.
func (l *laboratory) measure(ctx context.Context, p plan) (*results, error) {
	r := newResults(p)
	say("starting the gateways")
	for _, g := range p.groups {
		if err := l.start(ctx, g.cells); err != nil {
			return nil, err
		}
	}
	if err := l.introduce(ctx, r); err != nil {
		return nil, err
	}
	if p.warm {
		if err := l.warm(ctx, p); err != nil {
			return nil, err
		}
	}
	order := spots(p)
	for round := range p.rounds {
		say("round %d of %d", round+1, p.rounds)
		for _, at := range order {
			if err := l.turn(ctx, r, at, round); err != nil {
				g := p.groups[at.group]
				return nil, fmt.Errorf("measuring %s (%s): %w", g.cells[at.cell].name, g.heading(), err)
			}
		}
		slices.Reverse(order)
	}
	return r, nil
}

// turn measures a cell in a round, unless its group has had all of its own.
func (l *laboratory) turn(ctx context.Context, r *results, at spot, round int) error {
	g := r.plan.groups[at.group]
	if !g.measured(round) {
		return nil
	}
	shoot, err := l.shooter(ctx, r, at, round)
	if err != nil {
		return err
	}
	s, err := l.sample(ctx, g.cells[at.cell], shoot)
	if err != nil {
		return err
	}
	r.add(at, s)
	return nil
}

// spots are all cells, those of a group next to each other, and as often as the
// group has turns, there and back.
func spots(p plan) []spot {
	var all []spot
	for i, g := range p.groups {
		order := make([]spot, len(g.cells))
		for j := range g.cells {
			order[j] = spot{i, j}
		}
		for range max(1, g.turns) {
			all = append(all, order...)
			slices.Reverse(order)
		}
	}
	return all
}

// sample measures a cell once.
func (l *laboratory) sample(ctx context.Context, c cell, shoot shooter) (sample, error) {
	g := l.gateways[c.site]
	s := sample{flood: c.flood}
	if c.flood {
		if err := g.drain(ctx); err != nil {
			return sample{}, err
		}
	}
	before, err := l.reading(ctx, c)
	if err != nil {
		return sample{}, err
	}
	watched := make(chan int64, 1)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { watched <- g.watch(watching, c) }()
	s.shot, err = shoot(ctx, g.addrs[c.answer])
	stop()
	odd := <-watched
	if err != nil {
		return sample{}, err
	}
	after, err := l.reading(ctx, c)
	if err != nil {
		return sample{}, err
	}
	s.reading = after.minus(before)
	s.unexpected = odd + c.surprises(s.shot)
	return s, nil
}

// surprises is how many of the requests did not end as they should have.
func (c cell) surprises(s shot) int64 {
	switch {
	case c.name == namePinged:
		return 0 // PINGs may fail in an overload: its line says how many
	case !c.flood:
		return s.broken + s.statuses
	}
	var most float64
	if c.name != nameRefuse {
		// A full bucket, and a second for the way; as much again from memory, if
		// Redis is too slow now and then.
		most = 2 * floodRate * (s.took.Seconds() + 2)
	}
	return s.broken + max(0, s.requests-s.statuses-int64(most))
}

// reading is what servers have counted so far.
type reading struct {
	gatewayCPU time.Duration
	redisCPU   time.Duration
	calls      int64 // of the cell's Redis command
	counts
	counted  bool  // whether the gateway has told those
	resident int64 // bytes of the gateway, now
}

func (l *laboratory) reading(ctx context.Context, c cell) (reading, error) {
	g := l.gateways[c.site]
	used, err := g.usage()
	if err != nil {
		return reading{}, err
	}
	redis, err := l.redis.usage()
	if err != nil {
		return reading{}, err
	}
	r := reading{gatewayCPU: used.cpu, redisCPU: redis.cpu, resident: used.resident}
	if r.calls, err = l.redis.calls(ctx, c.command); err != nil {
		return reading{}, err
	}
	if c.site.asksRedis() {
		r.counted = true
		r.counts, err = g.counts(ctx)
	}
	return r, err
}

// minus is what was counted since; memory is as it is now.
func (r reading) minus(before reading) reading {
	r.gatewayCPU -= before.gatewayCPU
	r.redisCPU -= before.redisCPU
	r.calls -= before.calls
	r.counts = r.counts.minus(before.counts)
	return r
}
