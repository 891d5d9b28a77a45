package main

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// scenario is one load against a cluster of its own, with a Redis of its own.
type scenario struct {
	name      string
	mode      mode
	perSecond float64
	length    time.Duration
	proxied   bool          // whether Redis is asked through the delaying proxy
	delay     time.Duration // what that adds to each round trip
	kill      bool          // Redis dies half-way
	traffic   func(perSecond float64, m mode) *traffic
}

// measured is what a scenario told.
type measured struct {
	scenario
	verdict
	reached  float64                // decisions per second
	unasked  float64                // the part that was due and never asked
	sinceDue [3]time.Duration       // p50, p99, p99.9 from when a request was due
	deciding [3]time.Duration       // the same from when it was asked
	shares   [limit.Sources]float64 // of decisions, by source
	errors   int64
	redisCPU float64       // cores; of a Redis that is killed, until then
	ownCPU   time.Duration // of this process, per decision: the load and the instances
	calls    float64       // of the script, per decision
	void     bool          // whether it tells of the machine more than of the limiter
}

func (s scenario) run() (*measured, error) {
	server, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer server.close()
	addr := server.addr
	if s.proxied {
		proxy, err := startProxy(server.addr, s.delay)
		if err != nil {
			return nil, err
		}
		defer proxy.close()
		addr = proxy.addr
	}
	instances, err := startInstances(addr)
	if err != nil {
		return nil, err
	}
	defer stopInstances(instances)
	return s.measure(server, instances)
}

// look is what Redis had spent, and what was decided, at one moment.
type look struct {
	usage
	decided int64
	err     error
}

// measure offers the load and looks at Redis twice: when the load has run for a
// quarter of its time, so that what is still cold does not count, and at its end
// or when Redis is killed.
func (s scenario) measure(server *redisServer, instances []*instance) (*measured, error) {
	l := &load{traffic: s.traffic(s.perSecond, s.mode), perSecond: s.perSecond, length: s.length}
	looked, ended := make(chan look, 1), make(chan look, 1)
	take := func(into chan<- look) {
		u, err := server.usage()
		into <- look{u, l.decided.Load(), err}
	}
	l.marks = []mark{{s.length / 4, func() { take(looked) }}}
	if s.kill {
		l.marks = append(l.marks, mark{s.length / 2, func() {
			take(ended)
			server.kill()
		}})
	}
	cpu := cpuTime()
	out := l.run(instances)
	cpu = cpuTime() - cpu
	if !s.kill {
		take(ended)
	}
	before, after := <-looked, <-ended
	if err := errors.Join(before.err, after.err); err != nil {
		return nil, err
	}
	m := s.conclude(out, before, after)
	m.ownCPU = cpu / time.Duration(max(1, l.decided.Load()))
	return m, nil
}

func (s scenario) conclude(out *outcome, before, after look) *measured {
	m := &measured{
		scenario: s, verdict: judge(out.accounts, s.length), reached: out.perSecond(), errors: out.errors,
		unasked:  float64(out.dropped) / max(1, float64(out.dropped)+float64(len(out.samples))),
		sinceDue: percentiles(out.samples, func(s sample) uint32 { return s.sinceDue }),
		deciding: percentiles(out.samples, func(s sample) uint32 { return s.deciding }),
		redisCPU: (after.cpu - before.cpu).Seconds() / after.at.Sub(before.at).Seconds(),
		calls:    float64(after.calls-before.calls) / max(1, float64(after.decided-before.decided)),
	}
	for source := range m.shares {
		m.shares[source] = out.share(limit.Source(source))
	}
	return m
}

// cpuTime is what this process has used of processors since it began.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// percentiles are the p50, p99 and p99.9 of what the samples took.
func percentiles(samples []sample, of func(sample) uint32) [3]time.Duration {
	took := make([]uint32, len(samples))
	for i := range samples {
		took[i] = of(samples[i])
	}
	slices.Sort(took)
	var found [3]time.Duration
	if len(took) == 0 {
		return found
	}
	for i, perMille := range []int{500, 990, 999} {
		found[i] = time.Duration(took[(len(took)-1)*perMille/1000]) * time.Microsecond
	}
	return found
}
