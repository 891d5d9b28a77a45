package ratelimit

import (
	"context"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

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
	beside  bool // it is of a place, and its zone has a bucket before it

	due *due // nil: the request's cost, and nothing of it is settled
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

// count counts what was decided.
func (c *charge) count() {
	if c.outcome == outcomeRefused {
		c.zone.counts.decline(c.reason())
	}
	c.zone.counts.count(c.outcome, c.source)
}

// shown reports whether there is anything to tell about the bucket.
func (c *charge) shown() bool {
	return c.source != limit.SourceNone
}

// verdict is all that was decided about one request, however many directives it
// meets. It lives in the request's variables, so that `handle_errors` finds it.
type verdict struct {
	charges   []charge
	first     [1]charge       // the array of charges, as long as there is one
	buckets   [1]limit.Bucket // what the limiters are handed, as long as it is one
	about     int             // the charge that header and placeholders tell of
	turned    outcome         // what it was turned away as before any bucket was asked
	turnedAt  string          // the zone
	logged    bool            // the access log tells of it
	closed    bool            // it was refused, and no directive in handle_errors judges it again
	published bool
	who       *visitor        // where the answer is charged
	cost      int64           // the request's
	vars      map[string]any  // the request's, where the verdict lives; nil: it has none
	repl      *caddy.Replacer // the request's
	fields    fields
	writer    fieldWriter

	retryAfter [1]string // the header's values, on a refusal
}

// turnAway notes that a request is turned away without a bucket being asked.
func (v *verdict) turnAway(as outcome, at *zone) {
	v.turned, v.turnedAt = as, at.name
}

// verdictKey is where a request's variables hold its verdict.
const verdictKey = "rate_limit.answer" // a name that may be read, and is blank

// verdictOf returns what was decided about the request so far, or a new verdict. It
// looks up once what the verdict needs of the context, where each look-up goes
// through all that Caddy and its modules have put there.
func verdictOf(r *http.Request) *verdict {
	ctx := r.Context()
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if known, found := vars[verdictKey].(*verdict); found {
		return known
	}
	return &verdict{vars: vars, repl: ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)}
}

// String is what the request's variables tell of a verdict: nothing.
func (*verdict) String() string { return "" }

// charged reports whether the request was held to the bucket already.
func (v *verdict) charged(key limit.Key) bool {
	for i := range v.charges {
		if v.charges[i].bucket.Key == key {
			return true
		}
	}
	return false
}

func (v *verdict) add(c charge) {
	if v.charges == nil {
		v.charges = v.first[:0]
	}
	v.charges = append(v.charges, c)
}

// violated returns which of the charges since from refused the request: the one
// with the longest wait, and one that can never grant it before all others. It
// is -1 where none did.
func (v *verdict) violated(from int) int {
	worst := -1
	for i := from; i < len(v.charges); i++ {
		if v.charges[i].outcome == outcomeRefused && (worst < 0 || v.charges[i].waitsLongerThan(&v.charges[worst])) {
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
func (v *verdict) violatedNames() []string {
	var names []string
	for i := range v.charges {
		if v.charges[i].outcome == outcomeRefused && v.charges[i].shown() {
			names = append(names, v.charges[i].zone.name)
		}
	}
	return names
}

// asker asks the chain of limiters: to take what is wanted, or to foresee what they
// would give, which changes nothing.
type asker func(wanted limit.Request) (limit.Decision, error)

// decide asks about the charges, for what is wanted of each; the buckets of wanted are
// room for theirs. The enforced ones are asked in one call, so that all give or none.
// Shadow buckets never have a say in that: they are asked after the others have
// granted. It errs where nobody decided, which of those who take is where the client
// has left.
func (h *Handler) decide(charges []charge, wanted limit.Request, ask asker) error {
	if h.fullHere(charges) {
		return nil
	}
	cost := wanted.Cost
	wanted.Cost, wanted.Deadline = payable(charges, cost), h.deadline(charges)
	granted, err := enforce(charges, wanted, ask)
	if err != nil || !granted {
		return err
	}
	return askShadows(charges, wanted, cost, ask)
}

// askShadows asks about the buckets that may not refuse the request: each by itself,
// and all in one call, but for those of a region's share that cost something else.
func askShadows(charges []charge, wanted limit.Request, cost int64, ask asker) error {
	logs := logsOf(charges, false)
	for i := range charges {
		if charges[i].enforced() || charges[i].asked {
			continue
		}
		wanted.Apart, wanted.Buckets = true, wanted.Buckets[:0]
		wanted.Cost = charges[i].payable(cost)
		for j := i; j < len(charges); j++ {
			if c := &charges[j]; c.costs(wanted.Cost, cost) {
				c.asked = true
				if !c.tooLarge(c.take(wanted.Cost), logs, outcomeShadow) {
					wanted.Buckets = append(wanted.Buckets, c.bucket)
				}
			}
		}
		if len(wanted.Buckets) == 0 {
			continue
		}
		decision, err := ask(wanted)
		if err != nil {
			return err
		}
		noteShadows(charges[i:], wanted.Buckets, decision)
	}
	return nil
}

// costs reports whether the bucket may not refuse the request, is not asked yet,
// and is to be asked for this price.
func (c *charge) costs(price, cost int64) bool {
	return !c.enforced() && !c.asked && (c.bucket.Cost > 0 || c.payable(cost) == price)
}

// noteShadows writes a decision into the charges whose buckets were asked.
func noteShadows(charges []charge, buckets []limit.Bucket, decision limit.Decision) {
	next := 0
	for i := range charges {
		if c := &charges[i]; next < len(buckets) && !c.enforced() && c.bucket.Key == buckets[next].Key && c.isPlace() == buckets[next].OfPlaces() {
			part := decision.Part(next)
			c.note(part, part.First, outcomeShadow)
			next++
		}
	}
}

// enforce asks about all buckets that may refuse the request.
func enforce(charges []charge, wanted limit.Request, ask asker) (granted bool, err error) {
	buckets, possible := enforcedBuckets(charges, wanted.Buckets, wanted.Cost)
	if !possible || len(buckets) == 0 {
		return possible, nil
	}
	wanted.Buckets = buckets
	decision, err := ask(wanted)
	if err != nil {
		return false, err
	}
	noteEnforced(charges, decision)
	return decision.Granted > 0, nil
}

// enforcedBuckets adds the buckets that may refuse the request to the list. It is
// not possible that they give where one of them bears no such cost.
func enforcedBuckets(charges []charge, buckets []limit.Bucket, cost int64) (list []limit.Bucket, possible bool) {
	logs := logsOf(charges, true)
	for i := range charges {
		if !charges[i].enforced() {
			continue
		}
		c := &charges[i]
		if c.tooLarge(c.take(cost), logs, outcomeRefused) {
			return nil, false
		}
		buckets = append(buckets, charges[i].bucket)
	}
	return buckets, true
}

// noteEnforced writes a decision into the enforced charges. A refusal is never
// without one that refused, whatever the states say.
func noteEnforced(charges []charge, decision limit.Decision) {
	next, first, refused := 0, -1, false
	for i := range charges {
		if !charges[i].enforced() {
			continue
		}
		charges[i].note(decision, decision.At(next), outcomeRefused)
		refused = refused || charges[i].outcome == outcomeRefused
		if next == 0 {
			first = i
		}
		next++
	}
	if decision.Granted < 1 && !refused {
		charges[first].outcome = outcomeRefused
	}
}

// deadline is when all that is asked for one request must be answered, if it is
// asked in several calls. One call has the time that the chain gives it.
func (h *Handler) deadline(charges []charge) time.Time {
	if h.app.Redis == nil || len(charges) == 1 {
		return time.Time{}
	}
	return time.Now().Add(h.app.Redis.timeout())
}

// maxLogCost is the most that a request may take from logs in one call, all told.
// Each token is an entry there: more would hold up Redis for everyone.
const maxLogCost = 400

// logsOf is how many of the charges are logs, of those that may refuse the request
// or of the others.
func logsOf(charges []charge, enforced bool) (n int64) {
	for i := range charges {
		if charges[i].bucket.Rule.Algorithm == limit.SlidingWindowLog && charges[i].enforced() == enforced {
			n++
		}
	}
	return n
}

// tooLarge reports whether the cost is more than the bucket's kind can bear, beside
// other logs in one call, and notes that it can never be had.
func (c *charge) tooLarge(cost, logs int64, refused outcome) bool {
	if c.bucket.Rule.Algorithm != limit.SlidingWindowLog || cost <= maxLogCost/logs {
		return false
	}
	c.outcome, c.state = refused, limit.State{RetryAfter: limit.Never}
	return true
}

// taking returns what asks the chain of limiters to take.
func (h *Handler) taking(ctx context.Context) asker {
	return func(wanted limit.Request) (limit.Decision, error) { return h.take(ctx, wanted) }
}

// foreseeing returns what asks the chain of limiters what they would give.
func (h *Handler) foreseeing(ctx context.Context) asker {
	return func(wanted limit.Request) (limit.Decision, error) { return limit.Foresee(ctx, h.app.limiter, wanted) }
}

func (h *Handler) take(ctx context.Context, wanted limit.Request) (limit.Decision, error) {
	decision, err := h.app.limiter.Take(ctx, wanted)
	if err == nil {
		return decision, nil
	}
	if cause := ctx.Err(); cause != nil {
		return decision, caddyhttp.Error(statusClientClosedRequest, cause)
	}
	// Even the last limiter of the chain failed. That is a defect of ours, and
	// no reason to fail the request.
	h.logger.Error("deciding failed, the request passes", zap.Error(err))
	return limit.Decision{Granted: 1, Source: limit.SourceNone, Rest: make([]limit.State, len(wanted.Buckets)-1)}, nil
}

// payable returns what a request costs each of the enforced buckets, which give a
// region's share of their limits: a cost above a share is that whole share, so that
// it does not become impossible. One above a whole limit stays as it is, and is
// refused for good.
func payable(charges []charge, cost int64) int64 {
	price := cost
	for i := range charges {
		c := &charges[i]
		if !c.enforced() || c.bucket.Cost > 0 {
			continue
		}
		if cost > c.whole {
			return cost
		}
		price = c.payable(price)
	}
	return price
}

// payable is the same of one bucket.
func (c *charge) payable(cost int64) int64 {
	if cost > c.whole {
		return cost
	}
	return min(cost, c.bucket.Rule.Capacity)
}
