package main

import (
	"fmt"
	"strings"
)

// markdown is the page of a run: what was found, how it was measured, a table for
// each load, and the goals.
func (r *results) markdown() string {
	var out strings.Builder
	out.WriteString("## The gateway\n\n" + r.summary() + "\n![Requests per second of each](../docs/benchmark.svg)\n\n### How it was measured\n\n")
	fmt.Fprintf(&out, "`%s`. Rounds of each measurement: %d, of %d s, in alternating order; %d connections, on which wrk sends\n",
		r.command, r.plan.rounds, r.plan.seconds, wrkConnections)
	out.WriteString("one request after another, where nothing else is said. wrk, the gateway, Redis and the service behind it share the machine. " + r.about.String() + "\n\n")
	out.WriteString(about + "\n\n")
	if r.earlier != "" {
		fmt.Fprintf(&out, "The earlier commit is %s, built with the same Caddy and the same versions of all else.\n\n", r.earlier)
	}
	for _, reason := range r.void() {
		fmt.Fprintf(&out, "**VOID.** %s.\n\n", reason)
	}
	for _, reason := range r.caveats() {
		fmt.Fprintf(&out, "**Caution.** %s.\n\n", reason)
	}
	for i := range r.plan.groups {
		out.WriteString(r.table(i) + "\n")
	}
	out.WriteString(r.memoryTable())
	out.WriteString("\n### Goals\n\n" + r.reach())
	return out.String()
}

// about is what a reader has to know of the tables.
const about = "*Of the first* is the median of the ratios to the first line within each round: compare those. " +
	"Each tenant may send 1,000 requests a second (`" + string(limitCommon) + "`); where one tenant is much of the load, 1,000,000. " +
	"So nobody is refused but in the flood. Each gateway has seen each tenant once before the first round.\n\n" +
	"caddy-ratelimit is v0.1.0, which has no metrics, as later versions have none with `disable_metrics`. Its zone is 1,000 events in 1 s, " +
	"with a `sweep_interval` of 1 h so that it forgets no tenant between two rounds. It reserves 24 KB for each tenant. With a heap of gigabytes Go collects garbage " +
	"so seldom that all of its process is faster, Caddy too: it may even pass bare Caddy. `make bench` has a table in which the others collect seldom as well."

// table is that of one group.
func (r *results) table(group int) string {
	g := r.plan.groups[group]
	columns := columnsOf(g)
	var out strings.Builder
	fmt.Fprintf(&out, "### %s\n\n", g.heading())
	if g.note != "" {
		out.WriteString(g.note + "\n\n")
	}
	out.WriteString(r.base(group))
	out.WriteString("|")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s |", c.head)
	}
	out.WriteString("\n|" + strings.Repeat(" --- |", len(columns)) + "\n")
	for i, c := range g.cells {
		l := line{c, r.samples[group][i], r.samples[group][0], r.bases[group]}
		out.WriteString("|")
		for _, column := range columns {
			fmt.Fprintf(&out, " %s |", column.show(l))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// base says what wrk got from the gateway that the fixed times of a group are
// reckoned from.
func (r *results) base(group int) string {
	g := r.plan.groups[group]
	if g.paced == nil {
		return ""
	}
	return fmt.Sprintf("wrk got %s a second from %s.\n\n", showRate(line{samples: r.bases[group]}), g.paced.base.name)
}

// memoryTable is that of fresh gateways.
func (r *results) memoryTable() string {
	var out strings.Builder
	fmt.Fprintf(&out, "### Memory, after one request from each of %s tenants\n\n| | resident | more than bare Caddy |\n| --- | --- | --- |\n",
		grouped(int64(r.plan.touched)))
	for _, name := range []string{nameBare, nameAlone, nameStrict, namePeer} {
		if r.memory[name] == 0 {
			continue // it was not measured
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", name, megabytes(float64(r.memory[name])), megabytes(float64(r.memory[name]-r.memory[nameBare])))
	}
	return out.String()
}
