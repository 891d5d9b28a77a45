// Package headers holds what response headers say of a limit, as pure functions:
// the fields RateLimit and RateLimit-Policy (fields.go, where to begin), the problem
// document and who accepts it (problem.go), and numbers as clients may take them
// (number.go).
package headers

import (
	"math"
	"strconv"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// Quota is one bucket that a request was held to, as the fields RateLimit-Policy
// and RateLimit tell of it.
type Quota struct {
	Name  string // of the route or the zone
	Rule  limit.Rule
	Held  limit.Rule // the part of the rule that whoever decided gives
	State limit.State
}

// UntilMore returns in how many seconds more will be left, at least 1: under a
// token bucket, until one more token is there; under a window, until a request like
// this one finds what it costs, and where it does so now, until all is there. There
// is none where all is there, and where a request costs more than the capacity.
func (q *Quota) UntilMore() (seconds int64, found bool) {
	wait, full := q.State.RetryAfter, q.State.ResetAfter
	if wait < 0 || wait == 0 && full <= 0 {
		return 0, false
	}
	switch {
	case q.Held.Algorithm == limit.TokenBucket:
		others := float64(q.Held.Capacity-q.State.Remaining-1) / q.Held.Refill // seconds from then until it is full
		next := full - time.Duration(others*float64(time.Second))
		if wait == 0 || next < wait {
			wait = next
		}
	case wait == 0:
		wait = full
	}
	return max(1, WholeSeconds(wait)), true
}

// Policy returns the value of RateLimit-Policy: a structured field (RFC
// 9651), a List with one member for each quota. Its parameters are those of
// draft-ietf-httpapi-ratelimit-headers-11, section 3.1: q, the rule's capacity,
// and w, its window in whole seconds, rounded up and at least 1, because the
// draft knows no shorter one. A number of requests at once has no window, and the quota
// unit concurrent-requests. There is no pk: a partition key names the tenant.
func Policy(quotas []Quota) string {
	var room [fieldRoom]byte
	field := room[:0]
	for i := range quotas {
		if outdone(quotas, i) {
			continue
		}
		rule := &quotas[i].Rule
		field = appendMember(field, quotas[i].Name)
		field = appendParameter(field, 'q', rule.Capacity)
		if rule.Algorithm == limit.Concurrency {
			field = append(field, `;qu="concurrent-requests"`...)
			continue
		}
		field = appendParameter(field, 'w', max(1, WholeSeconds(time.Duration(rule.WindowMillis)*time.Millisecond)))
	}
	return string(field)
}

// Limit returns the value of RateLimit: a List like that of Policy,
// with the parameters of section 4.1 of the draft: r, the whole tokens left,
// from 0 to the capacity, and t, the seconds until more is there (UntilMore).
func Limit(quotas []Quota) string {
	var room [fieldRoom]byte
	field := room[:0]
	for i := range quotas {
		if outdone(quotas, i) {
			continue
		}
		state := &quotas[i].State
		field = appendMember(field, quotas[i].Name)
		field = appendParameter(field, 'r', min(state.Remaining, quotas[i].Rule.Capacity))
		if seconds, found := quotas[i].UntilMore(); found {
			field = appendParameter(field, 't', seconds)
		}
	}
	return string(field)
}

// fieldRoom is what a field with a few members needs, in bytes, so that only its
// text is allocated.
const fieldRoom = 192

// outdone reports whether another Quota of the same name is nearer to empty, or
// as near and came first. A client finds a policy by its name, so a name stands
// in a field once.
func outdone(quotas []Quota, i int) bool {
	for j := range quotas {
		if j == i || quotas[j].Name != quotas[i].Name {
			continue
		}
		mine, other := &quotas[i].State, &quotas[j].State
		switch {
		case mine.Remaining != other.Remaining:
			if other.Remaining < mine.Remaining {
				return true
			}
		case waitOf(mine) != waitOf(other):
			if waitOf(other) > waitOf(mine) {
				return true
			}
		case j < i:
			return true
		}
	}
	return false
}

// waitOf is the state's RetryAfter, with Never as the longest.
func waitOf(s *limit.State) time.Duration {
	if s.RetryAfter < 0 {
		return math.MaxInt64
	}
	return s.RetryAfter
}

// appendMember begins a member of a List.
func appendMember(field []byte, name string) []byte {
	if len(field) > 0 {
		field = append(field, ", "...)
	}
	return appendName(field, name)
}

// appendParameter adds a parameter with a whole number from 0 on.
func appendParameter(field []byte, key byte, n int64) []byte {
	field = append(field, ';', key, '=')
	return strconv.AppendInt(field, max(0, n), 10)
}

// appendName adds the name as a String (RFC 9651, section 3.3.3). It may hold
// printable ASCII and nothing else, with a backslash before quotes and
// backslashes. Every other byte becomes %XX: the Display String of the same RFC
// would hold it, but the draft wants a String. What it adds is JSON as well.
func appendName(field []byte, name string) []byte {
	const digits = "0123456789ABCDEF"
	field = append(field, '"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			field = append(field, '\\', c)
		case c < ' ' || c > '~':
			field = append(field, '%', digits[c>>4], digits[c&15])
		default:
			field = append(field, c)
		}
	}
	return append(field, '"')
}
