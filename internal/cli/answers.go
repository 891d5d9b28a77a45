package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// printStatus shows how the gateway fares.
func printStatus(t *tables, s *adminapi.Status) {
	lines := [][]string{
		{"version", s.Version + ", Caddy " + s.Caddy},
		{"decides", whoDecides(s)},
		{"instances", fmt.Sprint(s.Instances)},
	}
	if s.Fleet != nil {
		lines = append(lines, []string{"fleet", fleetSentence(s.Fleet)})
	}
	if s.Redis != nil {
		lines = append(lines, []string{"fallback", s.Fallback})
		for i := range s.Redis.Nodes {
			lines = append(lines, nodeLines(&s.Redis.Nodes[i])...)
		}
	}
	if s.Rules != nil {
		lines = append(lines, rulesLines(s.Rules)...)
	}
	if s.NoRoute > 0 {
		lines = append(lines, []string{"warning", fmt.Sprintf("%d rules for no route", s.NoRoute)})
	}
	if s.Region != nil {
		lines = append(lines, []string{"region", regionSentence(s.Region)})
	}
	if c := s.Charges; c != nil {
		lines = append(lines, []string{"charges", fmt.Sprintf("%d settlements lost, %d answers unread, %d bans hold", c.Lost, c.Unread, c.Bans)})
	}
	keys := make([]string, 0, len(s.Memory.Keys))
	for _, store := range slices.Sorted(maps.Keys(s.Memory.Keys)) {
		keys = append(keys, fmt.Sprint(store, " ", s.Memory.Keys[store]))
	}
	t.table(append(lines,
		[]string{"static rules", fmt.Sprint(s.StaticRules)},
		[]string{"in memory", fmt.Sprintf("%s (each at most %d)", strings.Join(keys, ", "), s.Memory.MaxKeys)},
		[]string{"routes", orDash(strings.Join(s.Routes, ", "))},
	)...)
	if s.Rules == nil || s.Rules.Rejected == 0 {
		return
	}
	t.line("")
	rows := under(len(s.Rules.Rejections), "REJECTED ROW", "ROUTE", "REASON")
	for _, row := range s.Rules.Rejections {
		rows = append(rows, []string{row.ID, orDash(row.Route), row.Reason})
	}
	t.table(rows...)
	if more := s.Rules.Rejected - len(s.Rules.Rejections); more > 0 {
		t.line("and %d more", more)
	}
}

// whoDecides is who decides, in words, and why where that is for want of knowledge.
func whoDecides(s *adminapi.Status) string {
	if s.Deciding == adminapi.DecidingShared || s.Deciding == adminapi.DecidingAlone || s.Deciding == "" {
		return s.Source
	}
	return s.Source + ", because of " + strings.ReplaceAll(s.Deciding, "_", " ")
}

func nodeLines(n *adminapi.Node) [][]string {
	breaker := "breaker " + n.Breaker
	if n.Since != nil {
		breaker += " since " + n.Since.Format("2006-01-02 15:04:05Z")
	}
	lines := [][]string{{"redis", fmt.Sprintf("%s: %s, connections %d", n.Address, breaker, n.Connections)}}
	if n.LastError != nil {
		lines = append(lines, []string{"last error", joined(n.LastError.Reason, n.LastError.Words) + ", " + span(n.LastError.AgoSeconds) + " ago"})
	}
	return lines
}

func rulesLines(r *adminapi.RulesInForce) [][]string {
	state := r.State
	if r.PollOnly != "" {
		state += " (" + r.PollOnly + ")"
	}
	lines := [][]string{{"rules", state + ": none are known yet"}}
	if r.AgeSeconds != nil {
		lines = [][]string{
			{"rules", fmt.Sprintf("%s: %d rules, %d rows rejected, %s old", state, r.Rules, r.Rejected, span(*r.AgeSeconds))},
			{"rules hash", r.Hash},
		}
	}
	if r.LastError != "" {
		lines = append(lines, []string{"rules error", fmt.Sprintf("%s (%d failures in a row)", r.LastError, r.Failures)})
	}
	return lines
}

// regionSentence is what the gateway gives of each limit, in words.
func regionSentence(r *adminapi.Region) string {
	text := fmt.Sprintf("%s gives %.4f of each limit (%s)", r.Name, r.Share, r.State)
	if r.State == adminapi.ShareMeasured || r.State == adminapi.ShareLapsed {
		text += ", as of " + span(r.AgeSeconds) + " ago"
	}
	if r.LastError != "" {
		text += ": " + r.LastError
	}
	return text
}

// fleetSentence is what the gateways know of each other, in words.
func fleetSentence(f *adminapi.Fleet) string {
	text := fmt.Sprintf("%d gateways counted %s ago, %d with other rules than most", f.Counted, span(f.HeartbeatAgeSeconds), f.Disagree)
	if f.LastError != "" {
		text += ", and not since: " + f.LastError
	}
	return text
}

// printRules shows a page of the rules.
func printRules(t *tables, r *adminapi.Rules) {
	rows := under(len(r.Rules), "TENANT", "ROUTE", "FROM", "RATE", "OPTIONS")
	for i := range r.Rules {
		rule := &r.Rules[i]
		rows = append(rows, []string{rule.Tenant, rule.Route, rule.From, rateOf(&rule.Numbers), orDash(joined(optionsOf(&rule.Numbers), strayMark(rule)))})
	}
	t.table(rows...)
	if !r.Known {
		t.line("the rules of PostgreSQL are not known yet")
	}
	t.line("%d of %d rules", len(r.Rules), r.Postgres+r.StaticRules)
	if r.Next != "" {
		t.line("more: --cursor %s", r.Next)
	}
}

// strayMark is the mark of a rule for a route that no handler has.
func strayMark(r *adminapi.Rule) string {
	if r.NoRoute {
		return "no such route here"
	}
	return ""
}

// printRefresh shows what a load brought.
func printRefresh(t *tables, r *adminapi.Refresh) {
	changed := "nothing has changed"
	if r.Changed {
		changed = "they have changed"
	}
	t.line("%d rules in force, %d rows rejected, after %s: %s", r.Rules, r.Rejected, span(r.TookSeconds), changed)
}

// printReset shows what was reset.
func printReset(t *tables, r *adminapi.Reset) {
	rows := under(len(r.Buckets), "BUCKET OF", "ROUTE", "HERE", "REDIS")
	ended := 0
	for _, b := range r.Buckets {
		rows = append(rows, []string{b.Name, b.Route, yes(b.Here), orDash(b.Redis)})
		if b.BanEnded {
			ended++
		}
	}
	t.table(rows...)
	if ended > 0 {
		t.line("bans ended: %d", ended)
	}
}

// mergeTops adds up the lists of several gateways.
func mergeTops(bodies [][]byte) ([]byte, error) {
	type place struct{ key, route string }
	var sum adminapi.Top
	at := map[place]int{}
	for i, body := range bodies {
		var top adminapi.Top
		if err := json.Unmarshal(body, &top); err != nil {
			return nil, fmt.Errorf("reading an answer of the admin API: %w", err)
		}
		if i == 0 {
			sum.Since, sum.Seconds, sum.By, sum.Buckets = top.Since, top.Seconds, top.By, []adminapi.TopBucket{}
		}
		for _, b := range top.Buckets {
			n, known := at[place{b.Key, b.Route}]
			if !known {
				at[place{b.Key, b.Route}] = len(sum.Buckets)
				sum.Buckets = append(sum.Buckets, b)
				continue
			}
			all := &sum.Buckets[n]
			all.Refused, all.Requests, all.Shadow, all.Over = all.Refused+b.Refused, all.Requests+b.Requests, all.Shadow+b.Shadow, all.Over+b.Over
		}
	}
	slices.SortStableFunc(sum.Buckets, func(a, b adminapi.TopBucket) int {
		return cmp.Compare(b.Refused+b.Requests+b.Shadow, a.Refused+a.Requests+a.Shadow)
	})
	body, err := json.MarshalIndent(&sum, "", "  ")
	return append(body, '\n'), err
}

// printTop shows the buckets that refused, or were asked, most.
func printTop(t *tables, a *adminapi.Top) {
	name, what := "REFUSED", "refusals"
	count := func(b *adminapi.TopBucket) int64 { return b.Refused }
	switch a.By {
	case adminapi.TopRequests:
		name, what, count = "ABOUT", "requests", func(b *adminapi.TopBucket) int64 { return b.Requests }
	case adminapi.TopShadow:
		name, what, count = "SHADOW", "requests that would have been refused", func(b *adminapi.TopBucket) int64 { return b.Shadow }
	}
	banned := slices.ContainsFunc(a.Buckets, func(b adminapi.TopBucket) bool { return b.BannedSeconds > 0 })
	rows := under(len(a.Buckets), name, "MAY BE LESS BY", "TENANT", "ROUTE")
	if banned {
		rows[0] = append(rows[0], "BANNED FOR")
	}
	for i := range a.Buckets {
		b := &a.Buckets[i]
		row := []string{decimal(count(b)), decimal(b.Over), b.Tenant, b.Route}
		if banned {
			row = append(row, banLeft(b.BannedSeconds))
		}
		rows = append(rows, row)
	}
	t.table(rows...)
	t.line("%s of the last %s", what, span(float64(int64(a.Seconds))))
}
