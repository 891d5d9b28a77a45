package ratelimit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
)

// guessing is a handler that bans for failed logins, and has banned the tenant t.
func guessing(t *testing.T, route string) *Handler {
	t.Helper()
	h := started(t, `{}`, `{"routes":["`+route+`"],"charge":[{"status":["401"]}],"ban":{"for":"1h","status":403},"limits":[{"capacity":2,"refill_per_second":0.001}]}`)
	for range 2 {
		_, err := call(t, h, says(401, nil, ""))
		require.NoError(t, err)
	}
	_, err := call(t, h, says(200, nil, ""))
	require.Equal(t, http.StatusForbidden, statusOf(err))
	return h
}

func bansOf(t *testing.T, app *App, query url.Values) *adminapi.Bans {
	t.Helper()
	answer, err := asks(app, adminapi.BansPath, query)
	require.NoError(t, err)
	return answer.(*adminapi.Bans)
}

// TestBansAreListedAndEnded: an operator sees who is banned, in every answer that tells
// of a tenant, and ends it.
func TestBansAreListedAndEnded(t *testing.T) {
	h := guessing(t, "bans-listed")
	list := bansOf(t, h.app, nil)
	require.Equal(t, 1, list.Seen)
	require.Equal(t, "t", list.Bans[0].Tenant)
	require.Equal(t, "t", list.Bans[0].Stored)
	require.Equal(t, "bans-listed", list.Bans[0].Route)
	require.InDelta(t, 3600, list.Bans[0].Seconds, 600)

	status, err := asks(h.app, adminapi.StatusPath, nil)
	require.NoError(t, err)
	require.Equal(t, 1, status.(*adminapi.Status).Charges.Bans)

	subject := url.Values{"tenant": {"t"}, "route": {"bans-listed"}}
	told := explained(t, h.app, subject)
	require.Equal(t, "status 401", told.Charge.By)
	require.EqualValues(t, 1, told.Charge.Reserved)
	require.Equal(t, adminapi.BanTerms{ForSeconds: 3600, Status: 403}, *told.Ban)
	require.InDelta(t, 3.6e6, told.Bucket.Local.BannedMs, 6e5)
	require.Equal(t, "refused", told.Next.Outcome)
	require.Equal(t, http.StatusForbidden, told.Next.Status)
	require.Equal(t, "ban", told.Next.Reason)

	reset, err := asks(h.app, adminapi.BucketPath, subject)
	require.NoError(t, err)
	require.True(t, reset.(*adminapi.Reset).Buckets[0].BanEnded)
	require.Zero(t, bansOf(t, h.app, nil).Seen)
	told = explained(t, h.app, subject)
	require.Equal(t, "granted", told.Next.Outcome)
	require.Zero(t, told.Bucket.Local.BannedMs)

	reset, err = asks(h.app, adminapi.BucketPath, subject)
	require.NoError(t, err)
	require.False(t, reset.(*adminapi.Reset).Buckets[0].BanEnded, "there was none")
}

// TestBansListIsBounded: the longest come first, as many as are asked for.
func TestBansListIsBounded(t *testing.T) {
	h := started(t, `{}`, `{"routes":["bans-bounded"],"ban":{"for":"1h"},"limits":[{"capacity":2,"refill_per_second":1}]}`)
	now := time.Now()
	for i := range 30 {
		name := strconv.Itoa(i)
		h.app.bans.note(limit.Key{Tenant: name, Route: "r"}, ban{tenant: name, zone: "r", until: now.Add(time.Duration(i+1) * time.Hour)}, now)
	}
	list := bansOf(t, h.app, url.Values{"limit": {"2"}})
	require.Equal(t, 30, list.Seen)
	require.Len(t, list.Bans, 2)
	require.Equal(t, "29", list.Bans[0].Tenant)
	require.Equal(t, "28", list.Bans[1].Tenant)
}

// TestBansWithoutRoom: a flood of bans finds no room, is no news each time, and has
// room when the others are over.
func TestBansWithoutRoom(t *testing.T) {
	t.Parallel()
	var b bans
	now := time.Now()
	note := func(name string, now time.Time) bool {
		return b.note(limit.Key{Tenant: name}, ban{tenant: name, until: now.Add(time.Hour)}, now)
	}
	for i := range maxBans {
		require.True(t, note(strconv.Itoa(i), now))
	}
	require.False(t, note("0", now), "known")
	for range 3 {
		require.False(t, note("more", now))
	}
	require.Equal(t, maxBans, b.holding(now))
	require.True(t, note("more", now.Add(2*time.Hour)))
	require.Equal(t, 1, b.holding(now.Add(2*time.Hour)))
}

// TestExplainCostOnRoute: a route's own price is what the next request is asked for.
func TestExplainCostOnRoute(t *testing.T) {
	h := started(t, `{}`, `{"routes":["explain-calls","explain-tokens"],"costs":[{"route":"explain-tokens","cost":"50"}],
		"charge":[{"route":"explain-tokens","json":["usage.total_tokens"],"unread":7}],
		"limits":[{"route":"explain-calls","capacity":10,"refill_per_second":0.0001},{"route":"explain-tokens","capacity":60,"refill_per_second":0.0001}]}`)
	about := func(route string) adminapi.Handler {
		return explained(t, h.app, url.Values{"tenant": {"t"}, "route": {route}})
	}
	tokens := about("explain-tokens")
	require.Equal(t, "json usage.total_tokens", tokens.Charge.By)
	require.EqualValues(t, 50, tokens.Charge.Reserved)
	require.EqualValues(t, 7, *tokens.Charge.Unread)
	require.Nil(t, about("explain-calls").Charge)
	require.Equal(t, "granted", tokens.Next.Outcome)
	_, err := call(t, h, says(200, map[string]string{"Content-Type": "application/json"}, `{"usage":{"total_tokens":20}}`))
	require.NoError(t, err)
	next := about("explain-calls").Next
	require.Equal(t, "refused", next.Outcome, "40 are left, and 50 are reserved")
	require.Equal(t, "explain-tokens", next.Route)
	require.EqualValues(t, 50, next.Cost)
	require.Equal(t, "rate", next.Reason)
}

// TestProblemOfABan tells the status of the answer and the reason.
func TestProblemOfABan(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	writeProblem(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody), problem{http.StatusForbidden, []string{"login"}, reasonBan})
	require.Equal(t, http.StatusForbidden, w.Code)
	var document map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
	require.EqualValues(t, 403, document["status"])
	require.Equal(t, "ban", document["reason"])
}
