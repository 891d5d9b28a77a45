package adminapi

import (
	"net/http"
	"time"
)

// Reset is the answer to DELETE /rate_limit/bucket.
type Reset struct {
	// Error says what was not reset.
	Error string `json:"error,omitempty"`

	// Buckets are those that were named, whether or not there was anything in them.
	Buckets []ResetBucket `json:"buckets"`
}

// ResetBucket is one bucket that was reset, and where.
type ResetBucket struct {
	Name  string `json:"name"`
	Route string `json:"route"`
	Here  bool   `json:"here"`
	Redis string `json:"redis,omitempty"`

	// BanEnded says that the gateway had seen a ban, which is over now. One that it
	// has not seen ends, too.
	BanEnded bool `json:"ban_ended,omitempty"`
}

// ResetDone is what a reset tells of Redis where it worked.
const ResetDone = "reset"

// Status is the answer's status: it tells that a part was not reset.
func (r *Reset) Status() int {
	if r.Error != "" {
		return http.StatusBadGateway
	}
	return http.StatusOK
}

// Top is the answer to GET /rate_limit/top.
type Top struct {
	// Since is when counting began, Seconds ago.
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`

	// By is what is counted, blank for refusals.
	By string `json:"by,omitempty"`

	// Buckets come with the one that has most first.
	Buckets []TopBucket `json:"buckets"`
}

// What buckets are listed by.
const (
	TopRefused  = "refused"
	TopRequests = "requests"
	TopShadow   = "shadow"
)

// TopBucket is one of the buckets that refused most: Refused times at most, which
// may be too high by Over.
type TopBucket struct {
	Tenant  string `json:"tenant"`
	Stored  string `json:"stored,omitempty"`
	Key     string `json:"key"`
	Route   string `json:"route"`
	Refused int64  `json:"refused"`

	// Requests is how often it was asked, about, and Shadow how often it would have
	// refused, in place of Refused where the list is by them.
	Requests int64 `json:"requests,omitempty"`
	Shadow   int64 `json:"shadow,omitempty"`

	Over int64 `json:"over"`

	// BannedSeconds is how long a ban that the gateway has seen still holds.
	BannedSeconds float64 `json:"banned_seconds,omitempty"`
}

const (
	// DefaultTop is how many buckets an answer has unless the query says.
	DefaultTop = 20

	// MaxTop is how many it may ask for.
	MaxTop = 200
)
