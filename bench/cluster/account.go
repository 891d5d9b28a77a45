package main

import (
	"sync/atomic"
	"time"
)

// spare is for how long after the load's end its last answers may come.
const spare = 2 * time.Second

// account is all that is known of one tenant's requests, by the ms.
type account struct {
	capacity, refill float64
	offered          []atomic.Int32 // requests, when they were asked
	began            []atomic.Int32 // those that were granted, when they were asked
	ended            []atomic.Int32 // and when they were answered
}

func newAccounts(t *traffic, length time.Duration) []*account {
	accounts := make([]*account, t.hot)
	for i := range accounts {
		rule := &t.buckets[i][0].Rule
		slots := int((length + spare).Milliseconds())
		accounts[i] = &account{
			capacity: float64(rule.Capacity), refill: rule.Refill,
			offered: make([]atomic.Int32, slots), began: make([]atomic.Int32, slots), ended: make([]atomic.Int32, slots),
		}
	}
	return accounts
}

func (a *account) note(asked, answered time.Duration, granted bool) {
	last := len(a.offered) - 1
	from, to := min(last, int(asked.Milliseconds())), min(last, int(answered.Milliseconds()))
	a.offered[from].Add(1)
	if granted {
		a.began[from].Add(1)
		a.ended[to].Add(1)
	}
}

// over is by how many tokens more was admitted, in any span of time, than the
// capacity and the refill of that span: 0 is never. Requests that were under way
// at either end of a span count for neither side, and so does a ms at each end.
func (a *account) over() float64 {
	perMilli := a.refill / 1000
	var began, ended, worst float64
	least := 0.0 // of what had begun, less the refill, at the start of a span
	for ms := range a.offered {
		least = min(least, began-float64(ms)*perMilli)
		began += float64(a.began[ms].Load())
		ended += float64(a.ended[ms].Load())
		worst = max(worst, ended-float64(ms+2)*perMilli-least-a.capacity)
	}
	return worst
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
		second.admitted += float64(a.began[ms].Load())
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
	over      float64   // the most tokens over the limit, of any tenant in any span
	tenant    int       // whose
	overShare float64   // the same as a part of what that tenant may have in a second
	error     float64   // the sum of the differences over that of what was allowed
	demanded  flow      // of the tenants that ask for more than their limit
	seconds   []float64 // admitted of allowed of those, in each second
}

func judge(accounts []*account, length time.Duration) verdict {
	var v verdict
	var differences, allowed float64
	seconds := make([]flow, int(length.Seconds()))
	for tenant, a := range accounts {
		if over := a.over(); over > v.over {
			v.over, v.tenant, v.overShare = over, tenant, over/a.refill
		}
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
