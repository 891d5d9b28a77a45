package ratelimit

import (
	"context"
	"time"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// explainAnswer is the answer to GET /rate_limit/explain. docs/admin.md says what
// the fields tell.
type explainAnswer struct {
	Route     string          `json:"route"`
	RulesHash string          `json:"rules_hash,omitempty"`
	Known     bool            `json:"rules_known"`
	Handlers  []handlerAnswer `json:"handlers"`
}

// handlerAnswer explains the route in those handlers that come to the same.
type handlerAnswer struct {
	Handlers   int               `json:"handlers"`
	Routes     []string          `json:"routes"`
	TenantFrom string            `json:"tenant_from"`
	Tenant     string            `json:"tenant"`
	Note       string            `json:"note,omitempty"`
	Candidates []candidateAnswer `json:"candidates"`
	Rule       *numbersAnswer    `json:"rule,omitempty"`
	RuleFrom   string            `json:"rule_from,omitempty"`
	Share      float64           `json:"region_share,omitempty"`
	Bucket     *bucketAnswer     `json:"bucket,omitempty"`
	Next       nextAnswer        `json:"next"`
}

// candidateAnswer is a place where a rule is looked for, the first that counts.
type candidateAnswer struct {
	From   string         `json:"from"`
	Tenant string         `json:"tenant,omitempty"`
	Route  string         `json:"route,omitempty"`
	Exists bool           `json:"exists"`
	Wins   bool           `json:"wins"`
	Rule   *numbersAnswer `json:"rule,omitempty"`
}

// answerExplain tells which rule counts, why, and what the next request gets.
func answerExplain(ctx context.Context, app *App, q *adminQuery) (any, error) {
	about, err := q.subject(app)
	if err != nil {
		return nil, err
	}
	cost, err := q.cost()
	if err != nil {
		return nil, err
	}
	rules := app.knownRules()
	answer := &explainAnswer{Route: about.route, Known: !rules.pending, Handlers: []handlerAnswer{}}
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
		answer.Handlers = append(answer.Handlers, e.explain(ctx))
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

func (e *explanation) explain(ctx context.Context) handlerAnswer {
	who := e.about.in(e.handler, e.zone, e.rules)
	answer := handlerAnswer{
		Handlers: 1, TenantFrom: e.handler.tenantFrom(e.zone), Tenant: who.shown, Note: who.note,
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
	asked := e.rules.charge(e.zone, key, who.shown, e.zone.rule(&who.visitor, e.rules))
	rule := asked.bucket.Rule
	numbers := newNumbers(rule)
	answer.Rule, answer.Share = &numbers, e.rules.shareOf(key)
	if who.key == "" {
		answer.Next = nextAnswer{Outcome: outcomeUnknown}
		return answer
	}
	if rule.Mode != limit.Deny && rule.Mode != limit.Unlimited {
		answer.Bucket = e.bucket(ctx, asked.bucket, asked.payable(e.price()))
	}
	answer.Next = e.next(ctx, who.visitor)
	return answer
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
func (e *explanation) candidates(tenant, plan string, asked bool) []candidateAnswer {
	layers := []*rulecache.Snapshot{e.rules.static}
	names := []string{fromStatic}
	if e.app.source != nil {
		layers, names = []*rulecache.Snapshot{e.rules.loaded, e.rules.static}, []string{fromPostgres, fromStatic}
	}
	var list []candidateAnswer
	for _, place := range rulecache.Candidates(tenant, plan, e.zone.route, len(layers)) {
		rule, exists := layers[place.Layer].Get(place.Tenant, place.Route)
		list = append(list, newCandidate(candidateAnswer{From: names[place.Layer], Tenant: place.Tenant, Route: place.Route}, rule, exists))
	}
	own := e.handler.hasLimit(e.zone)
	list = append(list, newCandidate(candidateAnswer{From: fromHandler}, e.zone.fallback, own))
	if e.zone.key == nil {
		fallback := limit.Rule{}
		if e.app.fallback != nil {
			fallback = *e.app.fallback
		}
		list = append(list, newCandidate(candidateAnswer{From: fromDefault}, fallback, e.app.fallback != nil))
	}
	for i := range list {
		if list[i].Exists && asked {
			list[i].Wins = true
			break
		}
	}
	return list
}

func newCandidate(c candidateAnswer, rule limit.Rule, exists bool) candidateAnswer {
	if c.Exists = exists; exists {
		numbers := newNumbers(rule)
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
	return false
}

// outlook is what makes the answers about two zones differ.
type outlook struct {
	tenant, guest, unknown string
	hashed, single         bool
	zone, route, routes    string
	defaults, fallback     limit.Rule
	cost                   costSource
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
	for _, other := range h.zones {
		look.routes += other.name + "\x00"
	}
	return look
}

// explainLook is how long a look at a bucket in Redis may take at least: an answer
// that comes too late for a request still tells an operator what is there.
const explainLook = 250 * time.Millisecond
