package regions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// world is gateways in regions around one store, in time that passes in steps of
// a second. Everything in it is the product's own but the store, the network and
// the clocks, and all chance is of one seed.
type world struct {
	t      testing.TB
	random *rand.Rand
	time   time.Time // the true one
	store  *memory
	every  time.Duration
	valid  time.Duration

	gateways []*simulated
	started  int
	stored   map[string]Share   // the safe share that a region's gateways have kept
	down     bool               // the store, for all
	cut      map[string]bool    // regions that do not reach it
	nested   bool               // time passes inside of a call
	faulty   bool               // calls fail and take long by chance
	demand   map[string]float64 // units a second, by region
	own      map[string]float64 // the same of one limit alone
	killAt   string             // the point at which the next job dies
	keys     []limit.Key        // limits that are looked at
	most     Share              // the largest sum of shares in force so far
	each     func(w *world)     // called after each step
	killed   map[string]int     // jobs that died, by point
}

// simulated is one gateway.
type simulated struct {
	member       *member
	world        *world
	dead         bool
	cut          bool
	busy         bool     // in a call
	seen, before *inForce // what is in force, and what was before
	changed      time.Time
	leaving      bool // what it gives now is the safe share
	next         time.Time
	drift        float64
	offset       time.Duration
}

var errFault = errors.New("a fault of the simulation")

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(seed, 6)), time: time.Unix(1_800_000_000, 0),
		every: 30 * time.Second, valid: time.Minute, cut: map[string]bool{}, demand: map[string]float64{}, own: map[string]float64{},
		keys: []limit.Key{Everything(), hot, {Tenant: "never", Route: "seen"}}, killed: map[string]int{}, stored: map[string]Share{},
	}
	// The store's clock goes wrong by as much as a gateway's.
	w.store = newMemory(func() time.Time {
		return w.time.Add(time.Duration(float64(w.time.Sub(time.Unix(1_800_000_000, 0))) * 0.002))
	})
	w.store.fail = func(string) error { return nil }
	return w
}

// hot is a limit whose demand is elsewhere than that of the others.
var hot = limit.Key{Tenant: "shop-a", Route: "api"}

// add starts a gateway in a region.
func (w *world) add(region string) *simulated {
	g := &simulated{world: w, drift: (w.random.Float64() - 0.5) * 0.01, offset: time.Duration(w.random.Int64N(int64(time.Hour))), next: w.time}
	g.member = &member{reader: w.store, id: fmt.Sprintf("%s-%d", region, w.started), region: region, valid: w.valid, drain: time.Second, now: g.now}
	g.member.start(Unknown)
	w.started++
	w.gateways = append(w.gateways, g)
	return g
}

// now is the gateway's own clock.
func (g *simulated) now() time.Time {
	since := g.world.time.Sub(time.Unix(1_800_000_000, 0))
	return g.world.time.Add(g.offset + time.Duration(float64(since)*g.drift))
}

// step lets a second pass.
func (w *world) step() {
	w.note()
	w.time = w.time.Add(time.Second)
	for _, g := range slices.Clone(w.gateways) {
		if !g.dead && !g.busy && !w.time.Before(g.next) {
			g.busy = true
			g.act()
			g.busy = false
		}
	}
	w.note()
	w.check()
	if w.each != nil && !w.nested {
		w.each(w)
	}
}

// act is one turn of a gateway's poller.
func (g *simulated) act() {
	w := g.world
	g.next = w.time.Add(time.Duration(8+w.random.IntN(3)) * time.Second)
	ctx := context.Background()
	w.store.fail = func(point string) error { return w.fault(g, point) }
	if g.leaving {
		_ = g.member.reader.Leave(ctx, g.member.id)
		g.next = w.time.Add(time.Hour)
		g.dead = w.random.IntN(2) == 0 // or there are requests that go on for long
		return
	}
	changed, err := g.member.poll(ctx)
	if err != nil {
		g.next = w.time.Add(time.Duration(1+w.random.IntN(8)) * time.Second)
		return
	}
	if changed || g.member.shares().all <= Unknown {
		g.next = w.time.Add(time.Second)
	}
	if floor := g.member.force.Load().fresh.floor(); floor > Unknown {
		w.stored[g.member.region] = floor
	}
	w.store.fail = func(point string) error { return w.fault(g, point) }
	units := w.demand[g.member.region] * 10 / float64(w.alive(g.member.region))
	own := w.own[g.member.region] * 10 / float64(w.alive(g.member.region))
	told := []Demand{{Key: Everything(), Units: units}, {Key: hot, Units: own}, {Key: Elapsed(), Units: 10_000}}
	if g.member.reader.Report(ctx, g.member.region, told) != nil {
		return
	}
	w.store.fail = func(point string) error { return w.fault(g, point) }
	_, err = Job{Books: w.store, Every: w.every}.Run(ctx)
	require.NotErrorIs(w.t, err, errUnsound)
}

func (w *world) alive(region string) (n int) {
	for _, g := range w.gateways {
		if !g.dead && g.member.region == region {
			n++
		}
	}
	return max(n, 1)
}

// fault makes a call fail where the gateway does not reach the store, where a job
// is to die, and by chance. A call may take long, while everyone else goes on.
func (w *world) fault(g *simulated, point string) error {
	if w.down || g.cut || w.cut[g.member.region] {
		return errFault
	}
	if w.killAt == point {
		w.killAt = ""
		w.killed[point]++
		g.dead = true
		return errFault
	}
	if !w.faulty {
		return nil
	}
	if !w.nested && w.random.IntN(60) == 0 {
		w.pass(1 + w.random.IntN(100))
		if w.down || g.cut || w.cut[g.member.region] {
			return errFault
		}
	}
	if w.random.IntN(40) == 0 {
		return errFault
	}
	return nil
}

// pass lets time go on inside of a call.
func (w *world) pass(seconds int) {
	before := w.store.fail
	w.nested = true
	for range seconds {
		w.step()
	}
	w.nested = false
	w.store.fail = before
}

// inForce is the most that a gateway of the region gives of a limit, with what was
// in force a second ago, by which decisions may go on.
func (w *world) inForce(region string, key limit.Key) (most Share) {
	for _, g := range w.gateways {
		if g.dead || g.member.region != region {
			continue
		}
		most = max(most, g.member.shares().of(key))
		ago := g.now().Add(-g.member.drain)
		if w.time.Sub(g.changed) < g.member.drain {
			most = max(most, g.before.at(ago).of(key))
		} else {
			most = max(most, g.seen.at(ago).of(key))
		}
	}
	return most
}

// note keeps what was in force before.
func (w *world) note() {
	for _, g := range w.gateways {
		force := g.member.force.Load()
		if force == g.seen {
			continue
		}
		if g.before == nil || w.time.After(g.changed) {
			g.before = cmp.Or(g.seen, force)
		}
		g.seen, g.changed = force, w.time
	}
}

func (s *Shares) of(key limit.Key) Share {
	if share, found := s.own[key]; found {
		return share
	}
	return s.all
}

// check sums what is in force.
func (w *world) check() {
	var names []string
	for _, g := range w.gateways {
		if !slices.Contains(names, g.member.region) {
			names = append(names, g.member.region)
		}
	}
	for _, key := range w.keys {
		sum := Share(0)
		for _, region := range names {
			sum += w.inForce(region, key)
		}
		w.most = max(w.most, sum)
	}
}

// trouble makes something happen, by chance.
func (w *world) trouble(names []string) {
	region := names[w.random.IntN(len(names))]
	if len(w.gateways) == 0 {
		w.add(region)
	}
	switch w.random.IntN(100) {
	case 0:
		w.cut[region] = true
	case 1, 2:
		w.cut = map[string]bool{}
	case 3:
		w.down = w.random.IntN(3) == 0
	case 4:
		w.down = false
	case 5, 6:
		if g := w.gateways[w.random.IntN(len(w.gateways))]; !g.dead {
			g.cut = !g.cut
		}
	case 7:
		if g := w.gateways[w.random.IntN(len(w.gateways))]; !g.dead && w.random.IntN(2) == 0 {
			g.dead = true // kill -9
		}
	case 8:
		if w.alive(region) < 4 {
			w.add(region)
		}
	case 9:
		w.demand[region] = float64(w.random.IntN(200))
		w.own[region] = float64(w.random.IntN(100))
	case 10:
		points := []string{"announced", "viewed", "update", "opened", "rebalanced", "committed"}
		w.killAt = points[w.random.IntN(len(points))]
	}
	w.stopAndStart(region)
	w.gateways = slices.DeleteFunc(w.gateways, func(g *simulated) bool { return g.dead && w.random.IntN(50) == 0 })
}

// stopAndStart makes a gateway of the region stop in good order, or one start that
// finds no PostgreSQL but the safe share of an earlier run.
func (w *world) stopAndStart(region string) {
	switch w.random.IntN(100) {
	case 0:
		if g := w.gateways[w.random.IntN(len(w.gateways))]; !g.dead && !g.busy && !g.leaving {
			g.leaving = true
			g.member.start(g.member.force.Load().fresh.floor())
			g.next = w.time.Add(2 * time.Second)
		}
	case 1:
		if w.stored[region] > 0 && w.alive(region) < 4 {
			g := w.add(region)
			g.cut = true
			g.member.start(w.stored[region])
		}
	}
}

// calm ends all trouble.
func (w *world) calm(names []string) {
	w.faulty, w.down, w.cut, w.killAt = false, false, map[string]bool{}, ""
	w.gateways = slices.DeleteFunc(w.gateways, func(g *simulated) bool { return g.dead || g.leaving })
	for _, g := range w.gateways {
		g.cut = false
	}
	for _, name := range names {
		w.add(name)
	}
}

func (w *world) passCalmly(seconds int) {
	for range seconds {
		w.step()
	}
}
