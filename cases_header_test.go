package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStructuredHeaders tells of every bucket in RateLimit and RateLimit-Policy.
func TestStructuredHeaders(t *testing.T) {
	t.Parallel()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", "upstream")
		w.Header().Set("RateLimit-Policy", "upstream")
	})
	for word, legacy := range map[string]bool{"ietf": false, "both": true} {
		g := startGateway(t, site("rate_limit {\nheaders "+word+"\n}", `rate_limit create-order total {
			limit 100/s burst 200 create-order
			limit 1/1000s burst 2 total
		}
		reverse_proxy `+to))
		first := g.get("/", "t1")
		require.Equal(t, []string{`"create-order";q=200;w=2, "total";q=2;w=2000`}, first.header.Values("RateLimit-Policy"))
		require.Equal(t, []string{`"create-order";r=199;t=1, "total";r=1;t=1000`}, first.header.Values("RateLimit"))
		require.Equal(t, legacy, first.field("X-RateLimit-Limit") == 2)
		g.get("/", "t1")
		refused := g.get("/", "t1")
		require.Equal(t, 429, refused.status)
		require.Regexp(t, `^"create-order";r=(19\d;t=1|200), "total";r=0;t=1000$`, refused.header.Get("RateLimit"))
		require.Equal(t, 1000, refused.field("Retry-After"))
	}
}

func TestResetEpoch(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("rate_limit {\nreset epoch\n}", "rate_limit a {\nlimit 1/1000s burst 2\n}\nrespond ok"))
	reset := g.get("/", "t1").field("X-RateLimit-Reset")
	require.InDelta(t, time.Now().Add(1000*time.Second).Unix(), reset, 3)
}

// TestProblemDocument gives a client that asks for it the document that the draft
// defines, unless handle_errors has a page of its own.
func TestProblemDocument(t *testing.T) {
	t.Parallel()
	directive := "rate_limit orders total {\nlimit 1/1000s burst 1\n}\nrespond ok"
	asks := http.Header{"X-Api-Key": {"t1"}, "Accept": {"text/html, application/problem+json;q=0.5"}}
	plain := startGateway(t, site("", directive))
	require.Equal(t, 200, plain.send(http.MethodGet, "/", asks).status)
	refused := plain.send(http.MethodGet, "/", asks)
	require.Equal(t, 429, refused.status)
	require.Equal(t, "application/problem+json", refused.header.Get("Content-Type"))
	require.Equal(t, 0, refused.remaining())
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(refused.body), &document))
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", document["type"])
	require.Equal(t, []any{"orders", "total"}, document["violated-policies"])
	require.EqualValues(t, 429, document["status"])
	require.Empty(t, plain.get("/", "t1").body, "nobody asked")
	head := plain.send(http.MethodHead, "/", asks)
	require.Equal(t, []any{429, fmt.Sprint(len(refused.body))}, []any{head.status, head.header.Get("Content-Length")})

	page := startGateway(t, site("", directive+"\nhandle_errors {\nrespond page\n}"))
	page.get("/", "t1")
	require.Equal(t, "page", page.send(http.MethodGet, "/", asks).body)
}
