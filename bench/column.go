package main

import (
	"fmt"
	"slices"
)

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
	most    []sample // what wrk got, where requests are due at fixed times
}

func (l line) median(figure func(sample) float64) float64 { return median(of(l.samples, figure)) }

// columnsOf are those of a group's table.
func columnsOf(g group) []column {
	var columns []column
	switch g.title {
	case titleFelt:
		columns = slices.Concat(rateColumns(g), timeColumns(), moreColumns(), costColumns(), generatorColumns())
	case titleOverload:
		columns = slices.Concat(rateColumns(g), overColumns(), timeColumns(), costColumns(), generatorColumns())
	default:
		columns = slices.Concat(rateColumns(g), timeColumns(), costColumns())
	}
	if g.cells[0].flood {
		columns = append(columns, column{"admitted/s", func(l line) string { return fmt.Sprintf("%.0f", l.median(sample.admitted)) }})
	}
	return columns
}

func rateColumns(g group) []column {
	columns := []column{{"", func(l line) string { return l.cell.name }}}
	switch {
	case g.paced != nil:
		return append(columns,
			column{"due/s", func(l line) string { return grouped(int64(l.median(sample.duePerSecond) + 0.5)) }},
			column{"answered/s", showRate})
	case g.cells[0].flood:
		columns = append(columns, column{"429s/s", showRate})
	default:
		columns = append(columns, column{"requests/s", showRate})
	}
	return append(columns, column{"of the first", func(l line) string { return fmt.Sprintf("%.3f", paired(l.samples, l.base)) }})
}

func timeColumns() []column {
	return []column{
		{"p50", func(l line) string { return showMillis(l.median(sample.p50Millis)) }},
		{"p99", func(l line) string { return showMillis(l.median(sample.p99Millis)) }},
	}
}

// moreColumns are what a gateway adds to the times of the first line.
func moreColumns() []column {
	more := func(figure func(sample) float64) func(line) string {
		return func(l line) string { return fmt.Sprintf("%+.3f ms", added(l.samples, l.base, figure)) }
	}
	return []column{{"p50 more", more(sample.p50Millis)}, {"p99 more", more(sample.p99Millis)}}
}

func costColumns() []column {
	return []column{
		{"gateway CPU/request", func(l line) string { return showMicros(l.median(sample.gatewayMicros)) }},
		{"Redis CPU/request", ofRedis(func(l line) string {
			return showMicros(l.median(func(s sample) float64 { return s.each(micros(s.redisCPU)) }))
		})},
		{"Redis calls/request", ofRedis(showCalls)},
		{"memory", func(l line) string { return megabytes(l.median(func(s sample) float64 { return float64(s.resident) })) }},
		{"decided without Redis", showLocal},
	}
}

// overColumns are what an overload does.
func overColumns() []column {
	return []column{
		{"by Redis/s", func(l line) string { return grouped(int64(l.median(sample.byRedis))) }},
		{"of the maximum", func(l line) string { return fmt.Sprintf("%.3f", pairedOf(l.samples, l.most, sample.byRedis)) }},
		{"breaker openings", func(l line) string {
			if !l.cell.site.asksRedis() {
				return ""
			}
			return fmt.Sprint(openings(l.samples))
		}},
		{"failed", func(l line) string {
			return fmt.Sprintf("%.1f %%", 100*l.median(func(s sample) float64 { return float64(s.broken+s.statuses) / float64(max(1, s.due)) }))
		}},
		{"never sent", func(l line) string {
			return fmt.Sprintf("%.1f %%", 100*l.median(func(s sample) float64 { return float64(s.unsent) / float64(max(1, s.due)) }))
		}},
	}
}

// generatorColumns are about who sends at fixed times.
func generatorColumns() []column {
	return []column{
		{"sent late", func(l line) string {
			return fmt.Sprintf("%.0f / %.0f µs", l.median(func(s sample) float64 { return micros(s.late50) }), l.median(func(s sample) float64 { return micros(s.late99) }))
		}},
		{"generator CPU/request", func(l line) string {
			return showMicros(l.median(func(s sample) float64 { return s.each(micros(s.generatorCPU)) }))
		}},
	}
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

func showMillis(millis float64) string { return fmt.Sprintf("%.2f ms", millis) }

func showMicros(micros float64) string { return fmt.Sprintf("%.1f µs", micros) }

// showCalls tells a flood's calls by the second, because it has next to none for
// each request.
func showCalls(l line) string {
	if l.cell.flood {
		return fmt.Sprintf("%.0f a second", l.median(sample.callsPerSecond))
	}
	return fmt.Sprintf("%.3f", l.median(sample.callsPerRequest))
}

// showLocal is the part of the decisions that Redis was too slow for.
func showLocal(l line) string {
	if !l.cell.site.asksRedis() {
		return ""
	}
	return fmt.Sprintf("%.2f %%", 100*l.median(sample.localPart))
}

func megabytes(bytes float64) string { return grouped(int64(bytes/1e6+0.5)) + " MB" }
