package ratelimit

import (
	"fmt"
	"strings"

	"github.com/caddygate/ratelimit/limit"
)

// printExplain shows which rule counts and what the next request gets.
func printExplain(t *tables, e *explainAnswer) {
	if !e.Known {
		t.line("the rules of PostgreSQL are not known yet")
	}
	for i := range e.Handlers {
		if i > 0 {
			t.line("")
		}
		e.Handlers[i].print(t, e.Route)
	}
}

func (h *handlerAnswer) print(t *tables, route string) {
	lines := [][]string{
		{"tenant", h.Tenant},
		{"route", route},
		{"handlers", fmt.Sprintf("%d, with the tenant %s and the routes %s", h.Handlers, orDash(h.TenantFrom), strings.Join(h.Routes, ", "))},
	}
	if h.Note != "" {
		lines = append(lines, []string{"note", h.Note})
	}
	lines = append(lines, []string{"next request", h.Next.sentence()})
	if h.Rule != nil {
		lines = append(lines, []string{"rule", joined(h.Rule.rate(), h.Rule.options(), "from "+h.RuleFrom)})
		if h.Share != 0 {
			lines = append(lines, []string{"region", fmt.Sprintf("the rule is %g of the whole, this region's share", h.Share)})
		}
	}
	t.table(append(lines, h.Bucket.lines()...)...)
	t.line("")
	rows := under(len(h.Candidates), "", "FROM", "TENANT", "ROUTE", "RATE", "OPTIONS")
	for _, c := range h.Candidates {
		row := []string{"", c.From, orDash(c.Tenant), orDash(c.Route), "-", "-"}
		if c.Rule != nil {
			row[4], row[5] = c.Rule.rate(), orDash(c.Rule.options())
		}
		if c.Wins {
			row[0] = ">"
		}
		rows = append(rows, row)
	}
	t.table(rows...)
}

// sentence is what the next request gets, in words.
func (n *nextAnswer) sentence() string {
	text := n.Outcome
	if n.Status != 0 {
		text += fmt.Sprintf(" (%d)", n.Status)
	}
	switch n.Source {
	case "":
	case limit.SourceRemembered.String():
		text += " by a remembered refusal"
	default:
		text += " by " + n.Source
	}
	if n.Cost > 1 {
		text += fmt.Sprintf(" at a cost of %d", n.Cost)
	}
	if n.Remaining != nil {
		text += fmt.Sprintf(", then %d left", *n.Remaining)
	}
	if n.RetryAfter != nil {
		text += fmt.Sprintf(", retry after %d s", *n.RetryAfter)
	}
	if n.Route != "" {
		text += ", on " + n.Route
	}
	return text
}

// lines is what is known of the bucket. There may be none.
func (b *bucketAnswer) lines() [][]string {
	if b == nil {
		return nil
	}
	var lines [][]string
	for _, key := range b.Keys {
		lines = append(lines, []string{"redis key", key})
	}
	if b.Redis != nil {
		lines = append(lines, []string{"in redis", b.Redis.sentence()})
	}
	for _, refusal := range b.Remembered {
		lines = append(lines, []string{"remembered", fmt.Sprintf("refuses a cost of %d and more for %s: %s", refusal.Cost, msSpan(refusal.ForMs), refusal.Key)})
	}
	if b.Prefetch > 0 {
		lines = append(lines, []string{"in hand", fmt.Sprintf("%d tokens", b.Prefetch)})
	}
	return append(lines, []string{"in memory", b.Local.sentence()})
}

// sentence is the state in words.
func (s *stateAnswer) sentence() string {
	if s.Error != "" {
		return "could not be asked: " + s.Error
	}
	text := fmt.Sprintf("%d of %d left", s.Remaining, s.Capacity)
	switch {
	case s.RetryAfterMs < 0:
		text += ", never enough"
	case s.RetryAfterMs > 0:
		text += ", next in " + msSpan(s.RetryAfterMs)
	}
	if s.ResetAfterMs != 0 {
		text += ", full in " + msSpan(s.ResetAfterMs)
	}
	return text
}
