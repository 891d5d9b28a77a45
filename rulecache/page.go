package rulecache

import (
	"cmp"
	"iter"
	"slices"

	"github.com/caddygate/ratelimit/limit"
)

// Query says which rules Snapshot.Page returns.
type Query struct {
	// Tenant and Route are those that a rule must have, exactly as it is stored:
	// "*" finds the rules for all. Default: any.
	Tenant, Route string
	// After is the pair after which the page begins. Default: at the beginning.
	After Pair
	// Including puts the rule for After itself on the page, too. Default: false.
	Including bool
	// Limit is how many rules there are at most on the page. Default: 100.
	Limit int
}

const defaultPage = 100

// Page returns the first rules after a pair, in the order of tenants and then of
// routes, as bytes. It looks at every rule unless the query names both a tenant and
// a route, up to 0.4 s for a million, and keeps no more than two pages.
func (s *Snapshot) Page(q Query) []Entry {
	if q.Limit <= 0 {
		q.Limit = defaultPage
	}
	if q.Tenant != "" && q.Route != "" {
		return s.only(q)
	}
	if s == nil || q.Tenant != "" && !s.HasTenant(q.Tenant) {
		return nil
	}
	var page []Entry
	var last *Pair // of a page that is full
	for pair, rule := range s.rules.all() {
		if !q.matches(pair) || last != nil && last.compare(pair) < 0 {
			continue
		}
		page = append(page, Entry{Pair: pair, Rule: rule})
		if len(page) == 2*q.Limit {
			// Sorted now and then, it takes no longer where the rules come in the
			// reverse order.
			page = q.first(page)
			last = &Pair{page[len(page)-1].Tenant, page[len(page)-1].Route}
		}
	}
	return q.first(page)
}

// All returns every rule, in no order.
func (s *Snapshot) All() iter.Seq2[Pair, limit.Rule] {
	if s == nil {
		return func(func(Pair, limit.Rule) bool) {}
	}
	return s.rules.all()
}

// first leaves of entries those that come first, in order.
func (q *Query) first(entries []Entry) []Entry {
	slices.SortFunc(entries, func(a, b Entry) int { return a.compare(b.Pair) })
	return entries[:min(len(entries), q.Limit)]
}

// only is a page of the one rule that the query can find.
func (s *Snapshot) only(q Query) []Entry {
	pair := Pair{Tenant: q.Tenant, Route: q.Route}
	rule, found := s.Get(pair.Tenant, pair.Route)
	if !found || !q.matches(pair) {
		return nil
	}
	return []Entry{{Pair: pair, Rule: rule}}
}

func (q *Query) matches(pair Pair) bool {
	if q.Tenant != "" && q.Tenant != pair.Tenant || q.Route != "" && q.Route != pair.Route {
		return false
	}
	order := pair.compare(q.After)
	return order > 0 || order == 0 && q.Including
}

// compare orders pairs.
func (p Pair) compare(other Pair) int {
	return cmp.Or(cmp.Compare(p.Tenant, other.Tenant), cmp.Compare(p.Route, other.Route))
}

// Candidate is a place where Find looks for a rule.
type Candidate struct {
	Pair
	// Layer is the number of the layer, counted from 0.
	Layer int
}

// Candidates returns the places where Find looks for the rule of a tenant with a
// plan on a route in so many layers, in its order: the first that holds a rule counts.
func Candidates(tenant, plan, route string, layers int) []Candidate {
	var list []Candidate
	for _, name := range [...]string{tenant, plan, Wildcard} {
		if name == "" {
			continue
		}
		for _, route := range [...]string{route, Wildcard} {
			for layer := range layers {
				list = append(list, Candidate{Pair: Pair{name, route}, Layer: layer})
			}
		}
	}
	return list
}
