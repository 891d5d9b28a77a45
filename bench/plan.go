package main

import "fmt"

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
	touched int  // the tenants of the comparison of memory
	warm    bool // whether each gateway is under load once before the first round
}

// group is what is measured next to each other under one load. Each is compared
// with the first.
type group struct {
	title string
	load  load
	cells []cell
}

// heading names the group. There is but one flood, whose title says all.
func (g group) heading() string {
	if g.title == titleFlood {
		return g.title
	}
	return g.title + ", " + g.load.String()
}

// cell is one line of a table: a gateway under its group's load.
type cell struct {
	name    string
	site    site
	command string // the Redis command that is counted; none: no Redis
	flood   bool   // whether requests are to be refused
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
)

// The titles of the groups.
const (
	titleStatic = "Static answer"
	titleProxy  = "`reverse_proxy`"
	titleFlood  = "Flood: one tenant far over its limit of 100/s"
)

// cells are gateways with that answer and the limit that is common.
func cells(answer string, names ...string) []cell { return cellsOf(limitCommon, answer, names) }

// wide are cells whose limit a single tenant under full load does not reach.
func wide(answer string, names ...string) []cell { return cellsOf(limitWide, answer, names) }

func cellsOf(l limited, answer string, names []string) []cell {
	list := make([]cell, 0, len(names))
	for _, name := range names {
		list = append(list, cell{name: name, site: siteOf(name, answer, l), command: commandOf(name), flood: l == limitFlood})
	}
	return list
}

func flood() group {
	return group{titleFlood, load{tenants: 1}, cellsOf(limitFlood, answerStatic, []string{nameRefuse, nameStrict})}
}

// commandOf is the Redis command of which a gateway sends one for each request,
// or fewer.
func commandOf(name string) string {
	switch name {
	case namePing:
		return "ping"
	case nameStrict, namePrefetch:
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
	return p, nil
}

// many is the number of tenants that the goals are about.
const many = 100_000

func fullPlan() plan {
	return plan{
		command: "make bench", rounds: 5, seconds: 3, touched: many, warm: true,
		groups: []group{
			{titleStatic, load{tenants: many}, cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{titleStatic, load{tenants: 1000}, cells(answerStatic, nameBare, nameAlone, nameStrict, namePeer)},
			{titleStatic, load{tenants: many, zipf: true}, wide(answerStatic, nameBare, nameAlone, nameStrict, namePrefetch)},
			{titleStatic, load{tenants: 1}, wide(answerStatic, nameBare, nameAlone, nameStrict, namePrefetch)},
			{titleProxy, load{tenants: many}, cells(answerProxy, nameBare, nameNothing, nameAlone, nameStrict, namePeer)},
			{titleProxy, load{tenants: 1000}, cells(answerProxy, nameBare, nameStrict)},
			flood(),
		},
	}
}

func quickPlan() plan {
	return plan{
		command: "make bench-quick", rounds: 2, seconds: 1, touched: many, warm: true,
		groups: []group{
			{titleStatic, load{tenants: many}, cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{titleProxy, load{tenants: many}, cells(answerProxy, nameBare, nameStrict, namePeer)},
			flood(),
		},
	}
}

// smokePlan asks for everything once and a short time, so that nothing rots.
func smokePlan() plan {
	return plan{
		command: "make bench-smoke", rounds: 1, seconds: 1, touched: 1000,
		groups: []group{
			{titleStatic, load{tenants: 1000}, cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{titleStatic, load{tenants: 1000, zipf: true}, wide(answerStatic, namePrefetch)},
			{titleProxy, load{tenants: 1000}, cells(answerProxy, nameBare, nameStrict)},
			flood(),
		},
	}
}
