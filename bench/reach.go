package main

import (
	"fmt"
	"strings"
)

// goal is a figure that we want to reach.
type goal struct {
	what       string
	least, aim float64
	told       bool // for information: there is nothing to reach
	below      bool // whether less is better
	digits     int
	measured   func(*results) (float64, bool)
	loud       func(*results) bool // whether the machine was not quiet enough for it; nil: it is not asked
	at         ratioAt             // the ratio that is measured, if it is one
	cannot     string              // why it cannot be measured, or not without an earlier commit
	why        string              // what keeps it from its bar, for where it is missed
}

// ratioGoal is a goal for a paired ratio.
func ratioGoal(what string, least, aim float64, at ratioAt) goal {
	return goal{what: what, least: least, aim: aim, digits: 2, at: at, measured: func(r *results) (float64, bool) {
		return r.ratio(at.title, at.load, at.over, at.under)
	}}
}

// toldRatio is a paired ratio that nothing depends on.
func toldRatio(what string, at ratioAt) goal {
	g := ratioGoal(what, 0, 0, at)
	g.told = true
	return g
}

// because adds what keeps a goal from its bar.
func (g goal) because(why string) goal {
	g.why = why
	return g
}

// cannotGoal is a goal that nobody can measure here.
func cannotGoal(what string, least, aim float64, cannot string) goal {
	return goal{what: what, least: least, aim: aim, digits: 2, cannot: cannot}
}

// ratioAt says which ratio.
type ratioAt struct {
	title       string
	load        load
	over, under string
}

// verdict says how far a goal was reached.
func (g goal) verdict(value float64) string {
	reached := func(bar float64) bool {
		if g.below {
			return value <= bar
		}
		return value >= bar
	}
	switch {
	case g.told:
		return "for information"
	case reached(g.aim):
		return "aim reached"
	case reached(g.least):
		return "met"
	default:
		return notMet
	}
}

const notMet = "**not met**"

// value is what was measured, if it was.
func (g goal) value(r *results) (float64, bool) {
	if g.measured == nil {
		return 0, false
	}
	return g.measured(r)
}

// excuse is why it was not measured, blank where the plan does not have it.
func (g goal) excuse(r *results) string {
	if g.measured != nil && r.earlier != "" {
		return ""
	}
	return g.cannot
}

// bar is what is to be reached, blank where nothing is.
func (g goal) bar(value float64) string {
	if g.told {
		return ""
	}
	return fmt.Sprintf("%.*f", g.digits, value)
}

// reach is the table of goals, and why any of them was missed.
func (r *results) reach() string {
	var out, missed strings.Builder
	out.WriteString("| | at least | aim | measured | |\n| --- | --- | --- | --- | --- |\n")
	for _, g := range goals() {
		value, measured := g.value(r)
		if !measured {
			if excuse := g.excuse(r); excuse != "" {
				fmt.Fprintf(&out, "| %s | %s | %s | not measured: %s | |\n", g.what, g.bar(g.least), g.bar(g.aim), excuse)
			}
			continue
		}
		verdict := r.verdictOf(g, value)
		if verdict == notMet {
			fmt.Fprintf(&missed, "\n**Missed: %s.** %s\n", g.what, g.why)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %.*f | %s |\n", g.what, g.bar(g.least), g.bar(g.aim), g.digits, value, verdict)
	}
	return out.String() + missed.String()
}
