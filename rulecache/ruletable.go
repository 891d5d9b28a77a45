package rulecache

import (
	"iter"

	"github.com/caddygate/ratelimit/limit"
)

// numbered is one rule and the numbers of its names.
type numbered struct {
	rule          limit.Rule
	tenant, route uint32
}

// ruleTable holds rules by their pairs. Once it is built it never changes.
type ruleTable struct {
	names   *names
	tenants []bool // whether a name is a tenant of any rule, by its number
	rules   []numbered
	index   index
}

// newRuleTable makes a table that has room for as many rules.
func newRuleTable(size int) *ruleTable {
	return &ruleTable{names: newNames(size), rules: make([]numbered, 0, size), index: newIndex(size)}
}

// len returns the number of rules.
func (t *ruleTable) len() int { return len(t.rules) }

// get returns the rule for a pair. It does not allocate.
func (t *ruleTable) get(pair Pair) (limit.Rule, bool) {
	tenant, found := t.names.find(pair.Tenant)
	if !found || !t.tenants[tenant] {
		return limit.Rule{}, false
	}
	route, found := t.names.find(pair.Route)
	if !found {
		return limit.Rule{}, false
	}
	n, _, found := t.index.find(pairHash(tenant, route), func(n uint32) bool {
		return t.rules[n].tenant == tenant && t.rules[n].route == route
	})
	if !found {
		return limit.Rule{}, false
	}
	return t.rules[n].rule, true
}

// hasTenant reports whether there is a rule for exactly this tenant.
func (t *ruleTable) hasTenant(name string) bool {
	number, found := t.names.find(name)
	return found && t.tenants[number]
}

// set puts a rule in the place of the one for its pair, and reports whether there
// was one. Names are copied.
func (t *ruleTable) set(pair Pair, rule limit.Rule) (replaced bool) {
	added := numbered{rule: rule, tenant: t.names.add(pair.Tenant), route: t.names.add(pair.Route)}
	for len(t.tenants) < len(t.names.ends) {
		t.tenants = append(t.tenants, false)
	}
	t.tenants[added.tenant] = true
	n, slot, found := t.index.find(pairHash(added.tenant, added.route), func(n uint32) bool {
		return t.rules[n].tenant == added.tenant && t.rules[n].route == added.route
	})
	if found {
		t.rules[n].rule = rule
		return true
	}
	n = uint32(len(t.rules))
	t.rules = append(t.rules, added)
	t.index.put(slot, n, func(n uint32) uint64 { return pairHash(t.rules[n].tenant, t.rules[n].route) })
	return false
}

// all returns the rules in the order in which their pairs were first set.
func (t *ruleTable) all() iter.Seq2[Pair, limit.Rule] {
	return func(yield func(Pair, limit.Rule) bool) {
		for i := range t.rules {
			n := &t.rules[i]
			if !yield(Pair{Tenant: t.names.get(n.tenant), Route: t.names.get(n.route)}, n.rule) {
				return
			}
		}
	}
}

// pairHash spreads the numbers of a pair over 64 bits.
func pairHash(tenant, route uint32) uint64 {
	hash := (uint64(tenant)<<32 | uint64(route)) * 0x9E3779B97F4A7C15
	return hash ^ hash>>32
}
