package main

import (
	"context"
	"time"

	"github.com/caddygate/ratelimit/bench/due"
)

const (
	// halfLoad is how many requests are due where it is about what users feel, as a
	// part of those that bare Caddy can answer there.
	halfLoad = 0.5

	// overConnections bounds how many requests are under way in an overload, as a
	// load balancer would: one that no answer slows down opens ever more.
	overConnections = 1024

	// overNice lets all others have the processors first: Redis, the service and
	// the generator, which have machines of their own elsewhere. So an overload of
	// the gateway is none of Redis.
	overNice = 10

	// overRest lets the queues of the load before run empty.
	overRest = time.Second
)

// paced is how a group has requests due at fixed times.
type paced struct {
	base        cell // what wrk gets from it in a round is the rate that others are reckoned from
	connections int
	rest        time.Duration // before each measurement
}

// felt is what users feel: bare Caddy, and what others add to its times, where
// nobody waits for want of a processor. Many short turns tell more than few long
// ones: what disturbs one of them does not disturb the median of the differences.
func felt(tenants, turns int) group {
	g := group{
		title: titleFelt, load: load{tenants: tenants}, cells: cells(answerProxy, nameBare, nameNothing, namePing, nameStrict),
		seconds: 1, turns: turns,
	}
	g.paced = &paced{base: g.cells[0], connections: wrkConnections}
	for i := range g.cells {
		g.cells[i].times = halfLoad
	}
	g.note = "What users feel. Requests are due at fixed times, half as many as wrk got from bare Caddy in the same round, and times count from when a request was due. " +
		"Each turn takes 1 s, and *more* is the median of the differences to the first line within each turn. *Sent late* (p50 / p99) is the error of the generator: " +
		"how long after it was due a request was sent for which a connection was free. The generator's processor time is beside that."
	return g
}

// overload is more than our strict gateway can do, and as much as it can. The
// handler with PINGs tells what is possible at all: it never decides by itself.
func overload(tenants, seconds, rounds int) group {
	both := cells(answerProxy, nameStrict, namePing)
	strict, ping := both[0], both[1]
	strict.site.nice, ping.site.nice = overNice, overNice
	most, beyond := strict, strict
	most.name, most.times = nameMost, 1
	beyond.name, beyond.times = nameBeyond, overTimes
	ping.name, ping.times = namePinged, overTimes
	return group{
		title: titleOverload, load: load{tenants: tenants}, cells: []cell{most, beyond, ping}, seconds: seconds, rounds: rounds,
		paced: &paced{base: strict, connections: overConnections, rest: overRest},
		note: "Requests are due at fixed times, 1.0 and 1.5 times as many as wrk got from ours in the same round, on up to 1,024 connections; times count from when a request was due. " +
			"*Of the maximum* are decisions by Redis, of those that wrk got. The handler with PINGs has as many requests as ours at 1.5 ×, and shows what the machine can do. " +
			"The gateway runs with `nice -n 10`: so Redis keeps its share of the cores, and the service and the generator theirs. " +
			"*Never sent* are requests for which no connection became free while the load lasted.",
	}
}

// overTimes is the overload, in what the gateway can do.
const overTimes = 1.5

// shooter puts a load on an address.
type shooter func(ctx context.Context, addr string) (shot, error)

// byWrk has wrk send a request on each connection as soon as the last is answered.
func (l *laboratory) byWrk(load load, length time.Duration) shooter {
	return func(ctx context.Context, addr string) (shot, error) { return l.wrk.fire(ctx, addr, load, length) }
}

// atFixedTimes has requests due, so many a second.
func (l *laboratory) atFixedTimes(g group, perSecond float64, length time.Duration) shooter {
	return func(ctx context.Context, addr string) (shot, error) {
		select {
		case <-ctx.Done():
			return shot{}, ctx.Err()
		case <-time.After(g.paced.rest):
		}
		return l.generator.fire(ctx, due.Load{
			Addr: addr, Tenants: g.load.tenants, PerSecond: perSecond, Length: length, Connections: g.paced.connections,
		})
	}
}

// shooter is what sends to a cell in this round. Where requests are due at fixed
// times, the first of a group in a round finds out how many.
func (l *laboratory) shooter(ctx context.Context, r *results, at spot, round int) (shooter, error) {
	g := r.plan.groups[at.group]
	times := g.cells[at.cell].times
	if g.paced == nil {
		return l.byWrk(g.load, g.length(r.plan)), nil
	}
	if len(r.bases[at.group]) <= round {
		s, err := l.sample(ctx, g.paced.base, l.byWrk(g.load, time.Duration(r.plan.seconds)*time.Second))
		if err != nil {
			return nil, err
		}
		r.bases[at.group] = append(r.bases[at.group], s)
	}
	return l.atFixedTimes(g, times*r.bases[at.group][round].rate(), g.length(r.plan)), nil
}
