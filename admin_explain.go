package ratelimit

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// answerExplain tells which rule counts, why, and what the next request gets.
func answerExplain(ctx context.Context, app *App, q *adminapi.Query) (any, error) {
	about, err := app.subject(q)
	if err != nil {
		return nil, err
	}
	cost, err := q.Number("cost", 0, limit.MaxCapacity) // 0: what the handler says
	if err != nil {
		return nil, badQuery(err)
	}
	rules := app.knownRules()
	answer := &adminapi.Explain{Route: about.Route, Known: !rules.pending, Handlers: []adminapi.Handler{}}
	if app.source != nil {
		answer.RulesHash = rules.loaded.Hash()
	}
	seen := map[outlook]int{}
	for _, of := range about.zones {
		look := newOutlook(of)
		if at, found := seen[look]; found {
			answer.Handlers[at].Handlers++
			continue
		}
		seen[look] = len(answer.Handlers)
		e := explanation{app: app, handler: of.handler, zone: of.zone, about: about, rules: rules, cost: cost}
		told := e.explain(ctx)
		if about.Route == "" {
			told.Route = of.zone.name
		}
		answer.Handlers = append(answer.Handlers, told)
	}
	return answer, nil
}

// explanation is what is needed to explain one zone.
type explanation struct {
	app     *App
	handler *Handler
	zone    *zone
	about   *subject
	rules   ruleSet
	cost    int64 // 0: the handler's
}

func (e *explanation) explain(ctx context.Context) adminapi.Handler {
	who := e.about.in(e.handler, e.zone, e.rules)
	answer := adminapi.Handler{
		Handlers: 1, TenantFrom: e.handler.tenantFrom(e.zone), Tenant: who.shown, Note: who.note,
		Plan: strings.TrimPrefix(who.Plan, "~"), Blocked: who.Blocked,
		Candidates: e.candidates(who.rules, who.Plan, who.means == standingLimited),
	}
	for _, zone := range e.handler.zones {
		answer.Routes = append(answer.Routes, zone.name)
	}
	if who.means != standingLimited {
		answer.Next = ended(who.means, e.handler.Shadow)
		return answer
	}
	for _, candidate := range answer.Candidates {
		if candidate.Wins {
			answer.RuleFrom = candidate.From
		}
	}
	key := limit.Key{Tenant: who.key, Route: e.zone.route}
	found := e.zone.rule(&who.visitor, e.rules)
	asked := e.rules.charge(e.zone, key, who.shown, found)
	rule := asked.bucket.Rule
	numbers := adminapi.NewNumbers(rule)
	answer.Rule, answer.Share = &numbers, e.rules.shareOf(key)
	answer.Charge, answer.Ban = e.charge(), e.ban()
	if who.key == "" {
		answer.Next = adminapi.Next{Outcome: adminapi.OutcomeUnknown}
		return answer
	}
	if rule.Mode != limit.Deny && rule.Mode != limit.Unlimited {
		cost := asked.payable(e.priceAt(e.zone))
		if running, bounded := e.rules.places(e.zone, &who.visitor, found); bounded && rule.Capacity == 0 {
			asked, cost = running, running.bucket.Cost // there is no other bucket
		}
		if asked.bucket.Settles {
			cost = min(cost, rule.Capacity)
		}
		answer.Bucket = e.bucket(ctx, asked.bucket, cost)
	}
	answer.Next = e.next(ctx, who.visitor)
	return answer
}

// charge is what a request costs in the end, nil where that is what it takes.
func (e *explanation) charge() *adminapi.Charge {
	c := e.handler.chargeOf(e.zone.route)
	if c == nil {
		return nil
	}
	reserved := e.handler.cost.fixed
	if e.zone.price != nil {
		reserved = e.zone.price.fixed
	}
	return &adminapi.Charge{By: c.words(), Reserved: reserved, Unread: c.Unread}
}

// ban is how the handler bans, nil where it does not.
func (e *explanation) ban() *adminapi.BanTerms {
	if e.zone.ban == 0 {
		return nil
	}
	return &adminapi.BanTerms{ForSeconds: e.zone.ban.Seconds(), Status: cmp.Or(e.handler.Ban.Status, http.StatusTooManyRequests)}
}

// tenantFrom is the text whose value names the tenant.
func (h *Handler) tenantFrom(z *zone) string {
	if z.key != nil {
		return z.key.template
	}
	return h.identity.tenant.template
}

// candidates lists all places where the rule of a tenant may be, in the order in
// which they count. None wins where no rule is asked for.
func (e *explanation) candidates(tenant, plan string, asked bool) []adminapi.Candidate {
	layers := []*rulecache.Snapshot{e.rules.static}
	names := []string{adminapi.FromStatic}
	if e.app.source != nil {
		layers, names = []*rulecache.Snapshot{e.rules.loaded, e.rules.static}, []string{adminapi.FromPostgres, adminapi.FromStatic}
	}
	var list []adminapi.Candidate
	for _, place := range rulecache.Candidates(tenant, plan, e.zone.route, len(layers)) {
		rule, exists := layers[place.Layer].Get(place.Tenant, place.Route)
		list = append(list, newCandidate(adminapi.Candidate{From: names[place.Layer], Tenant: place.Tenant, Route: place.Route}, rule, exists))
	}
	own := e.handler.hasLimit(e.zone)
	list = append(list, newCandidate(adminapi.Candidate{From: adminapi.FromHandler}, e.zone.fallback, own))
	if e.zone.key == nil {
		fallback := limit.Rule{}
		if e.app.fallback != nil {
			fallback = *e.app.fallback
		}
		list = append(list, newCandidate(adminapi.Candidate{From: adminapi.FromDefault}, fallback, e.app.fallback != nil))
	}
	for i := range list {
		if list[i].Exists && asked {
			list[i].Wins = true
			break
		}
	}
	return list
}

func newCandidate(c adminapi.Candidate, rule limit.Rule, exists bool) adminapi.Candidate {
	if c.Exists = exists; exists {
		numbers := adminapi.NewNumbers(rule)
		c.Rule = &numbers
	}
	return c
}

// hasLimit reports whether the handler itself says what counts where no rule is
// found.
func (h *Handler) hasLimit(z *zone) bool {
	if z.key != nil {
		return true
	}
	for i := range h.Limits {
		if h.Limits[i].Route == "" || h.Limits[i].Route == z.route {
			return true
		}
	}
	return z.fallback.Capacity == 0 && z.fallback.Concurrent > 0
}

// outlook is what makes the answers about two zones differ.
type outlook struct {
	tenant, guest, unknown string
	hashed, single         bool
	zone, route, routes    string
	defaults, fallback     limit.Rule
	cost, price            costSource
	charge                 string
	ban                    Ban
	prefixes               [4]int
}

func newOutlook(of zoneOf) outlook {
	h, z := of.handler, of.zone
	look := outlook{
		tenant: h.tenantFrom(z), guest: h.identity.guest, unknown: h.identity.unknown,
		hashed: h.identity.hashed, single: z.single, zone: z.name, route: z.route,
		defaults: z.defaults, fallback: z.fallback, cost: h.cost,
		prefixes: [4]int{z.ipv4Prefix, z.ipv6Prefix, h.IPv4Prefix, h.IPv6Prefix},
	}
	if z.price != nil {
		look.price = *z.price
	}
	if c := h.chargeOf(z.route); c != nil {
		look.charge = c.words()
		if c.Unread != nil {
			look.charge += " unread " + strconv.FormatInt(*c.Unread, 10)
		}
	}
	if h.Ban != nil {
		look.ban = *h.Ban
	}
	for _, other := range h.zones {
		look.routes += other.name + "\x00"
	}
	return look
}

// explainLook is how long a look at a bucket in Redis may take at least: an answer
// that comes too late for a request still tells an operator what is there.
const explainLook = 250 * time.Millisecond

// ended is what a request gets for whose it is. A directive in shadow lets it pass.
func ended(means standing, shadow bool) adminapi.Next {
	if means == standingFree {
		return adminapi.Next{Outcome: outcomeWords[outcomeAllowed], Status: http.StatusOK}
	}
	status := http.StatusUnauthorized
	if shadow {
		status = http.StatusOK
	}
	return adminapi.Next{Outcome: outcomeWords[outcomeUnauthorized], Status: status}
}

// next tells what ServeHTTP would do with the visitor's next request, in the same
// steps, and takes nothing.
func (e *explanation) next(ctx context.Context, who visitor) adminapi.Next {
	current, cost := new(verdict), e.price()
	for _, zone := range e.zones() {
		if who.Blocked {
			return adminapi.Next{Outcome: outcomeWords[outcomeDenied], Status: http.StatusForbidden, Route: zone.name}
		}
		rule := zone.rule(&who, e.rules)
		switch rule.Mode {
		case limit.Deny:
			return adminapi.Next{Outcome: outcomeWords[outcomeDenied], Status: http.StatusForbidden, Route: zone.name}
		case limit.Unlimited:
		default:
			key := limit.Key{Tenant: who.key, Route: zone.route}
			if rule.Capacity > 0 {
				asked := e.rules.charge(zone, key, who.shown, rule)
				asked.noteCost(e.priceAt(zone))
				current.add(asked)
			}
			if asked, bounded := e.rules.places(zone, &who, rule); bounded {
				current.add(asked)
			}
		}
	}
	if len(current.charges) == 0 {
		return adminapi.Next{Outcome: outcomeWords[outcomeUnlimited], Status: http.StatusOK}
	}
	wanted := limit.Request{Cost: cost, Count: 1, Local: e.rules.ignorant()}
	if err := e.handler.decide(current.charges, wanted, e.handler.foreseeing(ctx)); err != nil {
		return adminapi.Next{Outcome: adminapi.OutcomeUnknown, Cost: cost}
	}
	return e.told(current, cost)
}

// zones are those that a request meets for sure: all of a handler with routes, and
// of zones that match for themselves the one that is asked about.
func (e *explanation) zones() []*zone {
	if len(e.handler.RateLimits) > 0 {
		return []*zone{e.zone}
	}
	return e.handler.zones
}

// told is what a decided request is told.
func (e *explanation) told(current *verdict, cost int64) adminapi.Next {
	violated := current.violated(0)
	if violated < 0 {
		current.showNearest(0, headerStyle{})
	} else {
		current.about = violated
	}
	about := &current.charges[current.about]
	if about.due != nil {
		cost = about.due.price
	}
	next := adminapi.Next{
		Outcome: outcomeWords[about.outcome], Status: http.StatusOK, Route: about.zone.name, Cost: cost, Source: about.source.String(),
	}
	if about.shown() {
		remaining := min(max(about.state.Remaining, 0), about.bucket.Rule.Capacity)
		next.Remaining = &remaining
	}
	if violated < 0 {
		return next
	}
	next.Status, next.Reason = about.refusalStatus(), about.reason()
	if wait := about.state.RetryAfter; wait != limit.Never {
		seconds := max(1, headers.WholeSeconds(wait))
		next.RetryAfter = &seconds
	}
	return next
}
