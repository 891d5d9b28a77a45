package ratelimit

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
)

// TestTopBy lists buckets by what they refused, would have refused, and were asked.
func TestTopBy(t *testing.T) {
	h := started(t, `{}`, `{"routes":["top-by"],"limits":[{"capacity":100,"refill_per_second":0.001}]}`)
	shadow := started(t, `{}`, `{"routes":["top-by-shadow"],"shadow":true,"limits":[{"capacity":1,"refill_per_second":0.001}]}`)
	const requests = 3200
	for range requests {
		serves(t, h, "top-by-a", "")
	}
	for range 4 {
		serves(t, shadow, "top-by-b", "")
	}
	list := func(h *Handler, by string) *adminapi.TopBucket {
		answer, err := asks(h.app, adminapi.TopPath, url.Values{"by": {by}})
		require.NoError(t, err)
		for i := range answer.(*adminapi.Top).Buckets {
			if b := &answer.(*adminapi.Top).Buckets[i]; b.Route == h.zones[0].name {
				return b
			}
		}
		return nil
	}
	require.Equal(t, int64(requests-100), list(h, adminapi.TopRefused).Refused)
	asked := list(h, adminapi.TopRequests)
	require.Equal(t, "top-by-a", asked.Tenant)
	require.Zero(t, asked.Refused)
	require.InDelta(t, requests, asked.Requests, requests/2, "one in 16 is noted: that is ten times what chance does")
	require.Equal(t, int64(3), list(shadow, adminapi.TopShadow).Shadow)
	require.Nil(t, list(h, adminapi.TopShadow))

	_, err := asks(h.app, adminapi.TopPath, url.Values{"by": {"refusd"}})
	require.ErrorContains(t, err, `unknown value of parameter by "refusd": allowed are refused, requests, shadow; did you mean refused?`)
}

// TestEveryRoute explains and resets a tenant on every route where none is named.
func TestEveryRoute(t *testing.T) {
	h := started(t, `{}`, `{"routes":["every-a","every-b"],"limits":[{"capacity":2,"refill_per_second":0.001}]}`)
	for range 3 {
		serves(t, h, "every", "")
	}
	explained := func() map[string]string {
		answer, err := asks(h.app, adminapi.ExplainPath, url.Values{"tenant": {"every"}})
		require.NoError(t, err)
		require.Empty(t, answer.(*adminapi.Explain).Route)
		next := map[string]string{}
		for _, handler := range answer.(*adminapi.Explain).Handlers {
			next[handler.Route] = handler.Next.Outcome
		}
		return next
	}
	require.Equal(t, map[string]string{"every-a": "refused", "every-b": "refused"}, explained())
	answer, err := asks(h.app, adminapi.BucketPath, url.Values{"tenant": {"every"}})
	require.NoError(t, err)
	require.Len(t, answer.(*adminapi.Reset).Buckets, 2)
	require.Equal(t, map[string]string{"every-a": "granted", "every-b": "granted"}, explained())
}

// BenchmarkNoteAsked is what the lists cost a request.
func BenchmarkNoteAsked(b *testing.B) {
	h := started(b, `{}`, `{"routes":["note-asked"],"limits":[{"capacity":2,"refill_per_second":0.001}]}`)
	c := &charge{zone: h.zones[0], tenant: "shop-a", outcome: outcomeGranted}
	c.bucket.Key = limit.Key{Tenant: "shop-a", Route: "note-asked"}
	b.ReportAllocs()
	for b.Loop() {
		h.app.memory.noteAsked(c)
	}
}
