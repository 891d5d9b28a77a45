package cli

import (
	"fmt"
	"strings"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
)

// printExplain shows which rule counts and what the next request gets.
func printExplain(t *tables, e *adminapi.Explain) {
	if !e.Known {
		t.line("the rules of PostgreSQL are not known yet")
	}
	if e.Route == "" {
		printRoutes(t, e.Handlers)
		return
	}
	for i := range e.Handlers {
		if i > 0 {
			t.line("")
		}
		printHandler(t, &e.Handlers[i], e.Route)
	}
}

// printRoutes lists the routes, with what the next request gets on each.
func printRoutes(t *tables, handlers []adminapi.Handler) {
	rows := under(len(handlers), "ROUTE", "NEXT REQUEST", "RULE", "FROM")
	for i := range handlers {
		h := &handlers[i]
		next, rule := h.Next, "-"
		next.Route = "" // it stands before
		if h.Rule != nil {
			rule = joined(rateOf(h.Rule), optionsOf(h.Rule))
		}
		rows = append(rows, []string{h.Route, nextSentence(&next), rule, orDash(h.RuleFrom)})
	}
	t.table(rows...)
}

func printHandler(t *tables, h *adminapi.Handler, route string) {
	lines := [][]string{
		{"tenant", h.Tenant},
		{"route", route},
		{"handlers", fmt.Sprintf("%d, with the tenant %s and the routes %s", h.Handlers, orDash(h.TenantFrom), strings.Join(h.Routes, ", "))},
	}
	if h.Plan != "" {
		lines = append(lines, []string{"plan", h.Plan})
	}
	if h.Blocked {
		lines = append(lines, []string{"blocked", "by the table of tenants"})
	}
	if h.Note != "" {
		lines = append(lines, []string{"note", h.Note})
	}
	lines = append(lines, []string{"next request", nextSentence(&h.Next)})
	if h.Rule != nil {
		lines = append(lines, []string{"rule", joined(rateOf(h.Rule), optionsOf(h.Rule), "from "+h.RuleFrom)})
		if h.Share != 0 {
			lines = append(lines, []string{"region", fmt.Sprintf("the rule is %g of the whole, this region's share", h.Share)})
		}
	}
	lines = append(lines, chargeLines(h)...)
	t.table(append(lines, bucketLines(h.Bucket)...)...)
	t.line("")
	rows := under(len(h.Candidates), "", "FROM", "TENANT", "ROUTE", "RATE", "OPTIONS")
	for _, c := range h.Candidates {
		row := []string{"", c.From, orDash(c.Tenant), orDash(c.Route), "-", "-"}
		if c.Rule != nil {
			row[4], row[5] = orDash(rateOf(c.Rule)), orDash(optionsOf(c.Rule))
		}
		if c.Wins {
			row[0] = ">"
		}
		rows = append(rows, row)
	}
	t.table(rows...)
}

// nextSentence is what the next request gets, in words.
func nextSentence(n *adminapi.Next) string {
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
	if n.Reason == "ban" {
		text += " for a ban"
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

// chargeLines is what a request costs in the end, and who is banned. There may be none.
func chargeLines(h *adminapi.Handler) (lines [][]string) {
	if c := h.Charge; c != nil {
		text := c.By + ", reserved at the start what the request says"
		if c.Reserved > 0 {
			text = fmt.Sprintf("%s, reserved at the start %d", c.By, c.Reserved)
		}
		if c.Unread != nil {
			text += fmt.Sprintf(", unread %d", *c.Unread)
		}
		lines = append(lines, []string{"charge", text})
	}
	if b := h.Ban; b != nil {
		lines = append(lines, []string{"ban", fmt.Sprintf("%s (%d) for whoever empties the bucket", span(b.ForSeconds), b.Status)})
	}
	return lines
}

// bucketLines is what is known of the bucket. There may be none.
func bucketLines(b *adminapi.Bucket) [][]string {
	if b == nil {
		return nil
	}
	var lines [][]string
	for _, key := range b.Keys {
		lines = append(lines, []string{"redis key", key})
	}
	if b.Redis != nil {
		lines = append(lines, []string{"in redis", stateSentence(b.Redis)})
	}
	for _, refusal := range b.Remembered {
		lines = append(lines, []string{"remembered", fmt.Sprintf("refuses a cost of %d and more for %s: %s", refusal.Cost, msSpan(refusal.ForMs), refusal.Key)})
	}
	if b.Prefetch > 0 {
		lines = append(lines, []string{"in hand", fmt.Sprintf("%d tokens", b.Prefetch)})
	}
	return append(lines, []string{"in memory", stateSentence(b.Local)})
}

// stateSentence is the state in words.
func stateSentence(s *adminapi.State) string {
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
	if s.BannedMs > 0 {
		text += ", banned for " + msSpan(s.BannedMs)
	}
	return text
}
