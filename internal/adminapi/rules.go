package adminapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/caddygate/ratelimit/limit"
)

// Rules is the answer to GET /rate_limit/rules.
type Rules struct {
	// Hash is the same on every gateway that has the same rules from PostgreSQL.
	Hash string `json:"hash,omitempty"`

	// Known says whether the rules of PostgreSQL are known, or none are expected.
	Known bool `json:"known"`

	// Postgres and StaticRules are how many rules there are, whatever the page has.
	Postgres    int `json:"postgres"`
	StaticRules int `json:"static_rules"`

	// Rules are those of the page.
	Rules []Rule `json:"rules"`

	// Next is the cursor of the next page, blank on the last one.
	Next string `json:"next,omitempty"`
}

// Rule is one rule. What a rule does not name is left out.
type Rule struct {
	// Tenant and Route are whom and what the rule is for, as it is stored.
	Tenant string `json:"tenant,omitempty"`
	Route  string `json:"route,omitempty"`

	// From is FromPostgres or FromStatic.
	From string `json:"from,omitempty"`

	// NoRoute says that no handler of this gateway has the route.
	NoRoute bool `json:"no_route,omitempty"`
	Numbers
}

// Numbers is what a rule says. Prefetch is a number or "auto".
type Numbers struct {
	Capacity        int64   `json:"capacity"`
	RefillPerSecond float64 `json:"refill_per_second"`
	Algorithm       string  `json:"algorithm,omitempty"`
	Mode            string  `json:"mode,omitempty"`
	Prefetch        any     `json:"prefetch,omitempty"`
	Shards          uint8   `json:"shards,omitempty"`
	Concurrent      int64   `json:"concurrent,omitempty"`
}

// Where a rule comes from.
const (
	FromPostgres = "postgres"
	FromStatic   = "static"
	FromHandler  = "handler"
	FromDefault  = "default"
)

const (
	// DefaultRulesPage is how many rules a page has unless the query says.
	DefaultRulesPage = 100

	// MaxRulesPage is how many it may ask for.
	MaxRulesPage = 1000
)

// NewNumbers returns what a rule says.
func NewNumbers(rule limit.Rule) Numbers {
	n := Numbers{
		Capacity: rule.Capacity, RefillPerSecond: rule.Refill,
		Algorithm: rule.Algorithm.String(), Mode: rule.Mode.String(), Shards: rule.Shards, Concurrent: rule.Concurrent,
	}
	switch rule.Prefetch {
	case 0:
	case limit.PrefetchOff:
		n.Prefetch = 0
	case limit.PrefetchAuto:
		n.Prefetch = "auto"
	default:
		n.Prefetch = rule.Prefetch
	}
	return n
}

// Cut leaves a page of so many rules, by tenant, route and where they come from,
// and says where the next one begins.
func (r *Rules) Cut(most int) {
	slices.SortFunc(r.Rules, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Route, b.Route), cmp.Compare(a.From, b.From))
	})
	if len(r.Rules) <= most {
		return
	}
	r.Rules = r.Rules[:most]
	last := r.Rules[most-1]
	r.Next = Cursor{last.Tenant, last.Route, last.From}.String()
}

// Cursor is where a page of rules begins: after that rule.
type Cursor struct {
	Tenant string `json:"t"`
	Route  string `json:"r"`
	From   string `json:"f"`
}

// String is what a query has for it.
func (c Cursor) String() string {
	text, _ := json.Marshal(c) // three texts
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseCursor reads the field Next of a page. A blank one is the beginning.
func ParseCursor(text string) (cursor Cursor, err error) {
	if text == "" {
		return cursor, nil
	}
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(decoded, &cursor)
	}
	if err != nil || cursor.Tenant == "" || cursor.Route == "" || cursor.From != FromPostgres && cursor.From != FromStatic {
		return cursor, errors.New("parameter cursor: it is none: allowed is the field next of an answer")
	}
	return cursor, nil
}

// Refresh is the answer to POST /rate_limit/rules/refresh.
type Refresh struct {
	Rules       int     `json:"rules"`
	Rejected    int     `json:"rejected"`
	Hash        string  `json:"hash"`
	Changed     bool    `json:"changed"`
	TookSeconds float64 `json:"took_seconds"`
}
