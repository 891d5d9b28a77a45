package adminapi

import "net/http"

// BansPath is the path of the call that lists bans.
const BansPath = Root + "bans"

// BansCall lists the bans that the gateway has seen.
func BansCall() Call { return Call{http.MethodGet, BansPath, []string{"limit"}, callTimeout} }

// Bans is the answer to GET /rate_limit/bans.
type Bans struct {
	// Seen is how many bans hold that this gateway has seen; up to MaxBans are kept.
	Seen int `json:"seen"`

	// Bans are some of them, the one that lasts longest first.
	Bans []Ban `json:"bans"`
}

// Ban is one of the bans: whose bucket was emptied on which route, and how many
// seconds are left of it.
type Ban struct {
	Tenant  string  `json:"tenant"`
	Stored  string  `json:"stored,omitempty"`
	Key     string  `json:"key"`
	Route   string  `json:"route"`
	Seconds float64 `json:"seconds"`
}

const (
	// DefaultBans is how many bans an answer has unless the query says.
	DefaultBans = 100

	// MaxBans is how many it may ask for.
	MaxBans = 10_000
)
