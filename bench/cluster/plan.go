package main

import (
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// measureCluster runs every scenario, one after another.
func (r *report) measureCluster() error {
	var err error
	if r.offered, r.tooMuch, err = findRate(r.rate, r.rate, false); err != nil {
		return err
	}
	if r.delayed, r.tooMuchDelayed, err = findRate(r.rate, r.offered, true); err != nil {
		return err
	}
	if r.delays, err = addedDelays(); err != nil {
		return err
	}
	for _, s := range r.scenarios() {
		m, err := s.run()
		if err != nil {
			return fmt.Errorf("measuring %s: %w", s.name, err)
		}
		fmt.Println(m.line())
		r.measured = append(r.measured, m)
	}
	markVoid(r.measured)
	return nil
}

// control is the load that asks through the proxy without a delay: what comes of
// it tells whether the machine has the time for those with one.
const control = "strict, +0s"

// voidFrom is from which part of decisions by fallbacks, which no Redis that is up
// has a part in, a load tells of the machine and not of the limiter.
const voidFrom = 0.01

// markVoid says of each load whether it is void. One with a delay is where the
// control is, and one whose Redis is killed where that with a Redis is: what they
// have in fallbacks besides is what the delay or the death does.
func markVoid(all []*measured) {
	void := map[string]bool{}
	for _, m := range all {
		void[m.name] = m.shares[limit.SourceLocal] > voidFrom
	}
	for _, m := range all {
		switch {
		case m.delay > 0:
			m.void = void[control]
		case m.kill:
			m.void = void[m.mode.name]
		default:
			m.void = void[m.name]
		}
	}
}

// scenarios are those of a run.
func (r *report) scenarios() []scenario {
	length := 6 * time.Second
	if r.quick {
		length = 2 * time.Second
	}
	all := append(r.direct(length), r.distant(length)...)
	for _, s := range []scenario{
		{name: "one key, strict", mode: modes[0], perSecond: min(r.offered, 20_000)},
		{name: "one key, prefetch 50", mode: modes[2], perSecond: 20_000},
	} {
		s.length = length
		s.traffic = func(perSecond float64, m mode) *traffic { return evenTraffic(1, perSecond*1.25, m) }
		all = append(all, s)
	}
	return append(all, scenario{
		name: "full demand, strict", mode: modes[0], perSecond: min(r.offered, 20_000), length: length,
		traffic: func(perSecond float64, m mode) *traffic { return evenTraffic(hotCount, perSecond/hotCount/2, m) },
	})
}

// direct are the loads on a Redis that is near, which is up or killed half-way.
func (r *report) direct(length time.Duration) []scenario {
	var all []scenario
	for _, m := range modes {
		plain := scenario{name: m.name, mode: m, perSecond: r.offered, length: length, traffic: zipfTraffic}
		killed := plain
		killed.name, killed.kill = m.name+", Redis killed half-way", true
		all = append(all, plain)
		if !r.quick || m == modes[0] {
			all = append(all, killed)
		}
	}
	return all
}

// distant are the loads on a Redis that is farther away, and their control.
func (r *report) distant(length time.Duration) []scenario {
	var all []scenario
	for _, delay := range []time.Duration{0, 500 * time.Microsecond, time.Millisecond} {
		for _, m := range modes {
			if m != modes[0] && (r.quick || delay == 0) {
				continue
			}
			name := fmt.Sprintf("%s, +%v", m.name, delay)
			all = append(all, scenario{name: name, mode: m, perSecond: r.delayed, length: length, proxied: true, delay: delay, traffic: zipfTraffic})
		}
	}
	return all
}
