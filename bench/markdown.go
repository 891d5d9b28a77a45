package main

import (
	"fmt"
	"slices"
	"strings"
)

// markdown tells of the run: the goals, and a table for each load.
func (r *results) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "## The gateway\n\n`%s`. Rounds of each measurement: %d, of %d s, in alternating order; %d connections, on which wrk sends\n",
		r.command, r.plan.rounds, r.plan.seconds, wrkConnections)
	out.WriteString("one request after another. wrk, the gateway, Redis and the service behind it share the machine. " + r.about.String() + "\n\n")
	out.WriteString(about + "\n\n")
	for _, reason := range r.void() {
		fmt.Fprintf(&out, "**VOID.** %s.\n\n", reason)
	}
	for _, reason := range r.caveats() {
		fmt.Fprintf(&out, "**Caution.** %s.\n\n", reason)
	}
	out.WriteString("### Goals\n\n" + r.reach() + "\n")
	for i := range r.plan.groups {
		out.WriteString(r.table(i) + "\n")
	}
	out.WriteString(r.memoryTable())
	return out.String()
}

// about is what a reader has to know of the tables.
const about = "*Of the first* is the median of the ratios to the first line within each round: compare those. " +
	"Each tenant may send 1,000 requests a second (`" + string(limitCommon) + "`); where one tenant is much of the load, 1,000,000. " +
	"So nobody is refused but in the flood. Each gateway has seen each tenant once before the first round.\n\n" +
	"caddy-ratelimit is v0.1.0, which has no metrics, as later versions have none with `disable_metrics`. Its zone is 1,000 events in 1 s, " +
	"with a `sweep_interval` of 1 h so that it forgets no tenant between two rounds. It reserves 24 KB for each tenant. With a heap of gigabytes Go collects garbage " +
	"so seldom that all of its process is faster, Caddy too: it may even pass bare Caddy. `make bench` has a table in which the others collect seldom as well."

// column is a column of a table.
type column struct {
	head string
	show func(line) string
}

// line is what a table has a line of.
type line struct {
	cell    cell
	samples []sample
	base    []sample // of the first line
}

func (l line) median(figure func(sample) float64) float64 { return median(of(l.samples, figure)) }

// table is that of one group.
func (r *results) table(group int) string {
	g := r.plan.groups[group]
	columns := columnsOf(g)
	var out strings.Builder
	fmt.Fprintf(&out, "### %s\n\n", g.heading())
	if g.note != "" {
		out.WriteString(g.note + "\n\n")
	}
	out.WriteString("|")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s |", c.head)
	}
	out.WriteString("\n|" + strings.Repeat(" --- |", len(columns)) + "\n")
	for i, c := range g.cells {
		l := line{c, r.samples[group][i], r.samples[group][0]}
		out.WriteString("|")
		for _, column := range columns {
			fmt.Fprintf(&out, " %s |", column.show(l))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func columnsOf(g group) []column {
	rate := "requests/s"
	if g.cells[0].flood {
		rate = "429s/s"
	}
	columns := []column{
		{"", func(l line) string { return l.cell.name }},
		{rate, showRate},
		{"of the first", func(l line) string { return fmt.Sprintf("%.3f", paired(l.samples, l.base)) }},
		{"p50", func(l line) string { return showMillis(l, func(s sample) float64 { return micros(s.p50) }) }},
		{"p99", func(l line) string { return showMillis(l, func(s sample) float64 { return micros(s.p99) }) }},
		{"gateway CPU/request", func(l line) string {
			return showMicros(l, func(s sample) float64 { return s.each(micros(s.gatewayCPU)) })
		}},
		{"Redis CPU/request", ofRedis(func(l line) string {
			return showMicros(l, func(s sample) float64 { return s.each(micros(s.redisCPU)) })
		})},
		{"Redis calls/request", ofRedis(showCalls)},
		{"memory", func(l line) string { return megabytes(l.median(func(s sample) float64 { return float64(s.resident) })) }},
		{"decided without Redis", showLocal},
	}
	if g.cells[0].flood {
		columns = append(columns, column{"admitted/s", func(l line) string { return fmt.Sprintf("%.0f", l.median(sample.admitted)) }})
	}
	return columns
}

// ofRedis is blank for gateways without a Redis.
func ofRedis(show func(line) string) func(line) string {
	return func(l line) string {
		if l.cell.command == "" {
			return ""
		}
		return show(l)
	}
}

func showRate(l line) string {
	rates := of(l.samples, sample.rate)
	return fmt.Sprintf("%s (%s–%s)", grouped(int64(median(rates))), grouped(int64(slices.Min(rates))), grouped(int64(slices.Max(rates))))
}

func showMillis(l line, figure func(sample) float64) string {
	return fmt.Sprintf("%.2f ms", l.median(figure)/1000)
}

func showMicros(l line, figure func(sample) float64) string {
	return fmt.Sprintf("%.1f µs", l.median(figure))
}

// showCalls tells a flood's calls by the second, because it has next to none for
// each request.
func showCalls(l line) string {
	if l.cell.flood {
		return fmt.Sprintf("%.0f a second", l.median(sample.callsPerSecond))
	}
	return fmt.Sprintf("%.3f", l.median(func(s sample) float64 { return s.each(float64(s.calls)) }))
}

// showLocal is the part of the decisions that Redis was too slow for.
func showLocal(l line) string {
	if l.cell.site.global != withRedis {
		return ""
	}
	return fmt.Sprintf("%.2f %%", 100*l.median(sample.localPart))
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

func megabytes(bytes float64) string { return grouped(int64(bytes/1e6+0.5)) + " MB" }
