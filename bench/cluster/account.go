package main

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// spare is for how long after the load's end its last answers may come.
const spare = 2 * time.Second

// account is all that is known of one tenant's requests, by the ms.
type account struct {
	capacity, refill float64
	offered          []atomic.Int32 // requests, when they were asked
	all, shared      grants         // all that were granted, and those not by a fallback
}

// grants are requests that were granted, when they were asked and when answered.
type grants struct{ began, ended []atomic.Int32 }

func newGrants(slots int) grants {
	return grants{make([]atomic.Int32, slots), make([]atomic.Int32, slots)}
}

func (g *grants) note(from, to int) {
	g.began[from].Add(1)
	g.ended[to].Add(1)
}

func newAccounts(t *traffic, length time.Duration) []*account {
	accounts := make([]*account, t.hot)
	for i := range accounts {
		rule := &t.buckets[i][0].Rule
		slots := int((length + spare).Milliseconds())
		accounts[i] = &account{
			capacity: float64(rule.Capacity), refill: rule.Refill,
			offered: make([]atomic.Int32, slots), all: newGrants(slots), shared: newGrants(slots),
		}
	}
	return accounts
}

func (a *account) note(asked, answered time.Duration, d *limit.Decision) {
	last := len(a.offered) - 1
	from, to := min(last, int(asked.Milliseconds())), min(last, int(answered.Milliseconds()))
	a.offered[from].Add(1)
	if d.Granted == 0 {
		return
	}
	a.all.note(from, to)
	if d.Source != limit.SourceLocal {
		a.shared.note(from, to)
	}
}

// over is by how many tokens more was granted, in any span of time, than the
// capacity and the refill of that span: 0 is never. Requests that were under way
// at either end of a span count for neither side, and so does a ms at each end.
func (a *account) over(g *grants) float64 {
	perMilli := a.refill / 1000
	var began, ended, worst float64
	least := 0.0 // of what had begun, less the refill, at the start of a span
	for ms := range g.began {
		least = min(least, began-float64(ms)*perMilli)
		began += float64(g.began[ms].Load())
		ended += float64(g.ended[ms].Load())
		worst = max(worst, ended-float64(ms+2)*perMilli-least-a.capacity)
	}
	return math.Floor(worst + 1e-6)
}

// flow is what was admitted in a span, and what one bucket would have admitted.
type flow struct{ admitted, allowed float64 }

// perSecond is the flow of each second. The bucket that it is compared with is
// full at the start and meets the requests at the ms at which they were asked.
func (a *account) perSecond() []flow {
	level := a.capacity
	seconds := make([]flow, 0, len(a.offered)/1000+1)
	for ms := range a.offered {
		if ms%1000 == 0 {
			seconds = append(seconds, flow{})
		}
		second := &seconds[len(seconds)-1]
		level = min(a.capacity, level+a.refill/1000)
		allowed := min(float64(int64(level)), float64(a.offered[ms].Load()))
		level -= allowed
		second.allowed += allowed
		second.admitted += float64(a.all.began[ms].Load())
	}
	return seconds
}

// total sums up a flow.
func total(seconds []flow) flow {
	var sum flow
	for _, second := range seconds {
		sum.admitted += second.admitted
		sum.allowed += second.allowed
	}
	return sum
}

// verdict is what all accounts say together.
type verdict struct {
	over       float64   // the most tokens over the limit, of any tenant in any span
	overShared float64   // the same without what fallbacks granted
	error      float64   // the sum of the differences over that of what was allowed
	demanded   flow      // of the tenants that ask for more than their limit
	seconds    []float64 // admitted of allowed of those, in each second
}

func judge(accounts []*account, length time.Duration) verdict {
	var v verdict
	var differences, allowed float64
	seconds := make([]flow, int(length.Seconds()))
	for _, a := range accounts {
		v.over = max(v.over, a.over(&a.all))
		v.overShared = max(v.overShared, a.over(&a.shared))
		perSecond := a.perSecond()
		sum := total(perSecond)
		differences += max(sum.admitted-sum.allowed, sum.allowed-sum.admitted)
		allowed += sum.allowed
		if !a.short(length) {
			continue
		}
		v.demanded.admitted += sum.admitted
		v.demanded.allowed += sum.allowed
		for i := range seconds {
			seconds[i].admitted += perSecond[i].admitted
			seconds[i].allowed += perSecond[i].allowed
		}
	}
	v.error = differences / max(1, allowed)
	for _, second := range seconds {
		v.seconds = append(v.seconds, second.admitted/max(1, second.allowed))
	}
	return v
}

// short reports whether the tenant clearly asked for more than it may have.
func (a *account) short(length time.Duration) bool {
	asked := 0.0
	for ms := range a.offered {
		asked += float64(a.offered[ms].Load())
	}
	return asked > a.capacity+1.3*a.refill*length.Seconds()
}
