package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The plans, and how far flags may change them.
const (
	planFull  = "full"
	planQuick = "quick"
	planSmoke = "smoke"

	maxRounds  = 100
	maxSeconds = 60
)

// plan is what is measured.
type plan struct {
	command string // what to type for it
	groups  []group
	rounds  int
	seconds int  // of each measurement
	touched int  // how many tenants each gateway knows before the first round
	warm    bool // whether each gateway is under load once before that
}

// group is what is measured next to each other under one load. Each is compared
// with the first.
type group struct {
	title   string
	load    load
	cells   []cell
	seconds int    // of each measurement; 0: as the plan says
	rounds  int    // 0: as the plan says
	turns   int    // how often each is measured in a round; 0: once
	paced   *paced // requests are due at fixed times; nil: wrk sends them
	note    string // what is to be said of it
}

// measured reports whether the group has its turn in a round.
func (g group) measured(round int) bool { return g.rounds == 0 || round < g.rounds }

// length is how long each measurement of the group takes.
func (g group) length(p plan) time.Duration {
	if g.seconds > 0 {
		return time.Duration(g.seconds) * time.Second
	}
	return time.Duration(p.seconds) * time.Second
}

// heading names the group. There is but one flood, whose title says all.
func (g group) heading() string {
	if g.title == titleFlood {
		return g.title
	}
	return g.title + ", " + g.load.String()
}

// introduced reports whether the cell's gateway has seen all tenants before the
// first round: not where there is but one, nor where only the collector differs.
func (c cell) introduced() bool { return !c.flood && c.site.env == "" }

// cell is one line of a table: a gateway under its group's load.
type cell struct {
	name    string
	site    site
	answer  answer
	command string  // the Redis command that is counted; none: no Redis
	flood   bool    // whether requests are to be refused
	times   float64 // the rate at which requests are due, in the base's of a paced group
}

// load is what is sent: each request from one of so many tenants.
type load struct {
	tenants int
	zipf    bool // tenant k with a chance in proportion to 1/k, else all alike
}

// distribution is what the script of wrk calls it.
func (l load) distribution() string {
	if l.zipf {
		return "zipf"
	}
	return "uniform"
}

// String says it for a heading.
func (l load) String() string {
	if l.tenants == 1 {
		return "1 tenant"
	}
	return fmt.Sprintf("%s tenants, %s", grouped(int64(l.tenants)), l.distribution())
}

// The names of what is compared, the same in every group.
const (
	nameBare     = "bare Caddy"
	nameNothing  = "a handler that does nothing"
	namePing     = "a handler that sends one PING"
	nameAlone    = "ours, in memory"
	nameStrict   = "ours, Redis"
	namePrefetch = "ours, Redis, `prefetch auto`"
	namePeer     = "caddy-ratelimit, in memory"
	nameRefuse   = "a handler that refuses"
	nameEarlier  = "ours, Redis, of the earlier commit"
	nameMost     = "ours, Redis, at 1.0 × its maximum"
	nameBeyond   = "ours, Redis, at 1.5 × its maximum"
	namePinged   = "a handler that sends one PING, at as much"
)

// The titles of the groups.
const (
	titleStatic   = "Static answer"
	titleProxy    = "`reverse_proxy`"
	titleEqual    = "`reverse_proxy`, garbage seldom collected in each"
	titleFlood    = "Flood: one tenant far over its limit of 100/s"
	titleFelt     = "`reverse_proxy` at half of bare Caddy's rate"
	titleOverload = "`reverse_proxy`, overload"
)

// cells are gateways with that answer and the limit that is common.
func cells(a answer, names ...string) []cell { return cellsOf(limitCommon, a, names) }

// wide are cells whose limit a single tenant under full load does not reach.
func wide(a answer, names ...string) []cell { return cellsOf(limitWide, a, names) }

func cellsOf(l limited, a answer, names []string) []cell {
	list := make([]cell, 0, len(names))
	for _, name := range names {
		list = append(list, cell{name: name, site: siteOf(name, l), answer: a, command: commandOf(name), flood: l == limitFlood})
	}
	return list
}

// commandOf is the Redis command of which a gateway sends one for each request,
// or fewer.
func commandOf(name string) string {
	switch name {
	case namePing:
		return "ping"
	case nameStrict, namePrefetch, nameEarlier:
		return "evalsha"
	default:
		return ""
	}
}

func planOf(o options) (plan, error) {
	var p plan
	switch o.plan {
	case planFull:
		p = fullPlan()
	case planQuick:
		p = quickPlan()
	case planSmoke:
		p = smokePlan()
	default:
		return plan{}, fmt.Errorf("reading arguments: -plan %q is none of %s, %s and %s", o.plan, planFull, planQuick, planSmoke)
	}
	if o.rounds > 0 {
		p.rounds = o.rounds
	}
	if o.seconds > 0 {
		p.seconds = o.seconds
	}
	if o.against != "" {
		p.compare()
	}
	return p, p.restrict(o.only)
}

// restrict leaves the groups whose headings contain the text.
func (p *plan) restrict(text string) error {
	p.groups = slices.DeleteFunc(p.groups, func(g group) bool { return !strings.Contains(g.heading(), text) })
	if len(p.groups) == 0 {
		return fmt.Errorf("reading arguments: -only %q is in no heading of the plan", text)
	}
	return nil
}

// compare puts the earlier commit next to ours, where no processor is left and
// where users wait for nobody.
func (p *plan) compare() {
	for i := range p.groups {
		g := &p.groups[i]
		if i > 0 && g.title != titleFelt {
			continue
		}
		for j, c := range g.cells {
			if c.name == nameStrict {
				earlier := cells(c.answer, nameEarlier)[0]
				earlier.times = c.times
				g.cells = slices.Insert(g.cells, j+1, earlier)
				break
			}
		}
	}
}
