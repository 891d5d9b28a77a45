package main

// many is the number of tenants that the goals are about.
const many = 100_000

func fullPlan() plan {
	return plan{
		command: "make bench", rounds: 5, seconds: 3, touched: many, warm: true,
		groups: []group{
			{title: titleStatic, load: load{tenants: many}, cells: cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{title: titleStatic, load: load{tenants: 1000}, cells: cells(answerStatic, nameBare, nameAlone, nameStrict, namePeer)},
			{title: titleStatic, load: load{tenants: many, zipf: true}, cells: wide(answerStatic, nameBare, nameAlone, nameStrict, namePrefetch)},
			{title: titleStatic, load: load{tenants: 1}, cells: wide(answerStatic, nameBare, nameAlone, nameStrict, namePrefetch)},
			{title: titleProxy, load: load{tenants: many}, cells: cells(answerProxy, nameBare, nameNothing, nameAlone, nameStrict, namePeer)},
			{title: titleProxy, load: load{tenants: 1000}, cells: cells(answerProxy, nameBare, nameStrict)},
			felt(many, 3),
			overload(many, 20, 3),
			equal(),
			flood(),
		},
	}
}

func quickPlan() plan {
	return plan{
		command: "make bench-quick", rounds: 2, seconds: 1, touched: many, warm: true,
		groups: []group{
			{title: titleStatic, load: load{tenants: many}, cells: cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{title: titleProxy, load: load{tenants: many}, cells: cells(answerProxy, nameBare, nameStrict, namePeer)},
			felt(many, 2),
			overload(many, 5, 1),
			flood(),
		},
	}
}

// smokePlan asks for everything once and a short time, so that nothing rots.
func smokePlan() plan {
	return plan{
		command: "make bench-smoke", rounds: 1, seconds: 1, touched: 1000,
		groups: []group{
			{title: titleStatic, load: load{tenants: 1000}, cells: cells(answerStatic, nameBare, nameNothing, namePing, nameAlone, nameStrict, namePeer)},
			{title: titleStatic, load: load{tenants: 1000, zipf: true}, cells: wide(answerStatic, namePrefetch)},
			{title: titleProxy, load: load{tenants: 1000}, cells: cells(answerProxy, nameBare, nameStrict)},
			felt(1000, 1),
			overload(1000, 0, 0),
			flood(),
		},
	}
}

// equal is a group in which Go collects garbage seldom in each gateway.
func equal() group {
	g := group{title: titleEqual, load: load{tenants: many}, cells: cells(answerProxy, nameBare, nameStrict, namePeer), seconds: 1}
	g.note = "For information, 1 s each: bare Caddy and ours with `" + seldom + "`, so that collecting costs them next to nothing either."
	for i := range g.cells {
		if g.cells[i].name != namePeer {
			g.cells[i].site.env = seldom
		}
	}
	return g
}

// flood is one tenant that asks as much as it can.
func flood() group {
	return group{title: titleFlood, load: load{tenants: 1}, cells: cellsOf(limitFlood, answerStatic, []string{nameRefuse, nameStrict})}
}
