package main

import (
	"fmt"
	"strings"
)

// summary is what was compared and found, in a few sentences, for those who read no
// further. It leaves out what the plan did not measure.
func (r *results) summary() string {
	sentences := []string{"A Caddy with this plugin (*ours*) was compared with bare Caddy, with handlers that do nothing or send one PING to Redis for each request, " +
		"and with caddy-ratelimit, one after another in alternating rounds on one machine."}
	if bare, ok := r.ratio(titleStatic, uniform, nameAlone, nameBare); ok {
		peer, _ := r.ratio(titleStatic, uniform, nameAlone, namePeer)
		sentences = append(sentences, fmt.Sprintf("**In memory**, with a static answer, ours serves %.0f %% of bare Caddy's requests a second, and %.2f times caddy-ratelimit's.", 100*bare, peer))
	}
	if bare, ok := r.ratio(titleProxy, uniform, nameStrict, nameBare); ok {
		peer, _ := r.ratio(titleProxy, uniform, nameStrict, namePeer)
		sentences = append(sentences, fmt.Sprintf("**With Redis** and `reverse_proxy`, ours serves %.0f %% of bare Caddy's, and %.0f %% of those of caddy-ratelimit, which counts in memory for one gateway alone.", 100*bare, 100*peer))
	}
	if ours := r.memory[nameAlone]; ours > 0 && r.memory[namePeer] > 0 {
		sentences = append(sentences, fmt.Sprintf("**Memory** for 100,000 tenants is %s in all, %s more than bare Caddy's; caddy-ratelimit takes %s.",
			megabytes(float64(ours)), megabytes(float64(ours-r.memory[nameBare])), megabytes(float64(r.memory[namePeer]))))
	}
	missed, all := r.missed()
	sentences = append(sentences, fmt.Sprintf("Of %d goals, %d were missed: [each with its reason](#goals).", all, missed))
	return strings.Join(sentences, "\n") + "\n"
}

// missed counts the goals that were missed, of those that were measured.
func (r *results) missed() (missed, all int) {
	for _, g := range goals() {
		value, measured := g.value(r)
		if !measured || r.verdictOf(g, value) == "void" || g.told {
			continue
		}
		all++
		if r.verdictOf(g, value) == notMet {
			missed++
		}
	}
	return missed, all
}

// verdictOf is what a value says of a goal in this run.
func (r *results) verdictOf(g goal, value float64) string {
	if len(r.void()) > 0 || !r.says(g.at) || g.loud != nil && g.loud(r) {
		return "void"
	}
	return g.verdict(value)
}
