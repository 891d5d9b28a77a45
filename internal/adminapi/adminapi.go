// Package adminapi is what the admin API of a gateway and those that ask it agree
// on: the calls, the parameters of their queries, and the answers. docs/admin.md
// says what the fields of the answers tell. Open adminapi.go first, for the calls,
// and then the file of an answer.
package adminapi

import (
	"net/http"
	"slices"
	"time"
)

// The paths of the calls, all below Root.
const (
	Root        = "/rate_limit/"
	StatusPath  = Root + "status"
	RulesPath   = Root + "rules"
	RefreshPath = Root + "rules/refresh"
	ExplainPath = Root + "explain"
	BucketPath  = Root + "bucket"
	TopPath     = Root + "top"
)

// Call is one of the calls.
type Call struct {
	// Method and Path are those of the request.
	Method, Path string

	// Parameters are those that its query may have, each once.
	Parameters []string

	// Within is how long the gateway takes at most to answer.
	Within time.Duration
}

const (
	// callTimeout bounds most calls: all that they wait for is Redis.
	callTimeout = 5 * time.Second

	// RefreshTimeout is how long a refresh waits for the load to end.
	RefreshTimeout = 30 * time.Second
)

// StatusCall asks how the gateway fares.
func StatusCall() Call { return Call{http.MethodGet, StatusPath, nil, callTimeout} }

// RulesCall lists the rules in force.
func RulesCall() Call {
	return Call{http.MethodGet, RulesPath, []string{"tenant", "route", "limit", "cursor"}, callTimeout}
}

// ExplainCall asks which rule counts, why, and what the next request gets.
func ExplainCall() Call {
	return Call{http.MethodGet, ExplainPath, []string{"tenant", "stored", "key", "ip", "route", "cost"}, callTimeout}
}

// ResetCall makes a bucket full again.
func ResetCall() Call {
	return Call{http.MethodDelete, BucketPath, []string{"tenant", "stored", "key", "ip", "route"}, callTimeout}
}

// RefreshCall loads the rules now.
func RefreshCall() Call { return Call{http.MethodPost, RefreshPath, nil, RefreshTimeout} }

// TopCall lists the buckets that refused, or were asked, most.
func TopCall() Call { return Call{http.MethodGet, TopPath, []string{"by", "limit"}, callTimeout} }

// Methods are those that the call takes.
func (c *Call) Methods() []string {
	switch {
	case c.Method != http.MethodGet:
		return []string{c.Method}
	case c.NamesTenant():
		return []string{http.MethodGet, http.MethodHead, http.MethodPost}
	}
	return []string{http.MethodGet, http.MethodHead}
}

// NamesTenant reports whether a parameter may be a secret. Caddy logs the URI of
// every admin call, so that such parameters may stand in the body, too.
func (c *Call) NamesTenant() bool { return slices.Contains(c.Parameters, "tenant") }

const (
	// Form is the media type of parameters in a body.
	Form = "application/x-www-form-urlencoded"

	// MaxForm is how many bytes of parameters a body may have.
	MaxForm = 64 << 10
)
