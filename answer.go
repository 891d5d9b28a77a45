package ratelimit

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// charge is one bucket that a request is held to, and what came of it.
type charge struct {
	zone    *zone
	tenant  string // as placeholders tell it
	bucket  limit.Bucket
	whole   int64 // capacity of the rule that all regions share
	state   limit.State
	source  limit.Source
	outcome outcome
	asked   bool // of the shadow buckets
}

// longestShown is the longest tenant that is told as it was sent, in bytes,
// unless it is short enough in characters to have rules.
const longestShown = limit.MaxNameLength

// told is the tenant as logs, events, spans and the admin API tell it: as it was
// sent, or as keys have it where that is long.
func (c *charge) told() string {
	if len(c.tenant) <= longestShown || rulecache.MayName(c.tenant) {
		return c.tenant
	}
	return c.bucket.Key.Tenant
}

// enforced reports whether the bucket may refuse the request.
func (c *charge) enforced() bool { return c.bucket.Rule.Mode != limit.Shadow }

// note writes the bucket's part of a decision. Refused is what a refusal is
// counted as. A bucket that could have given has no part in a refusal.
func (c *charge) note(decision limit.Decision, state limit.State, refused outcome) {
	c.state, c.source = state, decision.Source
	switch {
	case decision.Granted > 0 && decision.Source == limit.SourceNone:
		c.outcome = outcomeAllowed
	case decision.Granted > 0:
		c.outcome = outcomeGranted
	case state.RetryAfter != 0:
		c.outcome = refused
	}
}

// shown reports whether there is anything to tell about the bucket.
func (c *charge) shown() bool {
	return c.source != limit.SourceNone
}

// answer is all that was decided about one request, however many directives it
// meets. It lives in the request's variables, so that `handle_errors` finds it.
type answer struct {
	charges   []charge
	first     [1]charge       // the array of charges, as long as there is one
	buckets   [1]limit.Bucket // what the limiters are handed, as long as it is one
	about     int             // the charge that header and placeholders tell of
	turned    outcome         // what it was turned away as before any bucket was asked
	turnedAt  string          // the zone
	logged    bool            // the access log tells of it
	closed    bool            // it was refused, and no directive in handle_errors judges it again
	published bool
	vars      map[string]any  // the request's, where the answer lives; nil: it has none
	repl      *caddy.Replacer // the request's
	fields    fields
	writer    fieldWriter

	retryAfter [1]string // the header's values, on a refusal
}

// turnAway notes that a request is turned away without a bucket being asked.
func (a *answer) turnAway(as outcome, at *zone) {
	a.turned, a.turnedAt = as, at.name
}

// answerKey is where a request's variables hold its answer.
const answerKey = "rate_limit.answer"

// answerOf returns what was decided about the request so far, or a new answer. It
// looks up once what the answer needs of the context, where each look-up goes
// through all that Caddy and its modules have put there.
func answerOf(r *http.Request) *answer {
	ctx := r.Context()
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if known, found := vars[answerKey].(*answer); found {
		return known
	}
	return &answer{vars: vars, repl: ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)}
}

// String is what the request's variables tell of an answer: nothing.
func (*answer) String() string { return "" }

// charged reports whether the request was held to the bucket already.
func (a *answer) charged(key limit.Key) bool {
	for i := range a.charges {
		if a.charges[i].bucket.Key == key {
			return true
		}
	}
	return false
}

func (a *answer) add(c charge) {
	if a.charges == nil {
		a.charges = a.first[:0]
	}
	a.charges = append(a.charges, c)
}

// violated returns which of the charges since from refused the request: the one
// with the longest wait, and one that can never grant it before all others. It
// is -1 where none did.
func (a *answer) violated(from int) int {
	worst := -1
	for i := from; i < len(a.charges); i++ {
		if a.charges[i].outcome == outcomeRefused && (worst < 0 || a.charges[i].waitsLongerThan(&a.charges[worst])) {
			worst = i
		}
	}
	return worst
}

func (c *charge) waitsLongerThan(other *charge) bool {
	if other.state.RetryAfter == limit.Never {
		return false
	}
	return c.state.RetryAfter == limit.Never || c.state.RetryAfter > other.state.RetryAfter
}

// violatedNames lists the zones that refused the request.
func (a *answer) violatedNames() []string {
	var names []string
	for i := range a.charges {
		if a.charges[i].outcome == outcomeRefused && a.charges[i].shown() {
			names = append(names, a.charges[i].zone.name)
		}
	}
	return names
}

// showNearest makes the answer tell of the charge that is nearest to empty.
func (a *answer) showNearest(from int, style headerStyle) {
	for i := from; i < len(a.charges); i++ {
		c, about := &a.charges[i], &a.charges[a.about]
		if c.shown() && (!about.shown() || c.state.Remaining <= about.state.Remaining) {
			a.about = i
		}
	}
	if (style.legacy || style.ietf) && a.charges[a.about].shown() {
		a.fields.tell(style, a.charges, a.about)
	}
}

// publish makes the answer known to the rest of the request: to other
// directives, and to placeholders.
func (a *answer) publish() {
	if a.published {
		return
	}
	a.published = true
	if a.vars != nil {
		a.vars[answerKey] = a
	}
	a.repl.Map(a.placeholder)
}

// placeholder gives the values of the handler's placeholders, blank where no bucket
// was asked.
func (a *answer) placeholder(name string) (any, bool) {
	const prefix = "http.rate_limit."
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return nil, false
	}
	name = name[len(prefix):]
	if len(a.charges) == 0 {
		return "", slices.Contains([]string{"tenant", "route", "remaining", "source", "exceeded.name"}, name)
	}
	about := &a.charges[a.about]
	switch name {
	case "tenant":
		return about.tenant, true
	case "route":
		return about.zone.name, true
	case "remaining":
		return about.state.Remaining, true
	case "source":
		return about.source.String(), true
	case "exceeded.name":
		if about.outcome == outcomeRefused {
			return about.zone.name, true
		}
		return "", true
	}
	return nil, false
}
