package ratelimit

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/rulecache"
)

// TestS4BeforeStart lets requests come before the app has started: they wait for
// the rules, and a tenant that is denied is denied. Where nothing starts, or
// PostgreSQL does not answer, they do not wait for ever.
func TestS4BeforeStart(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema("", ""))
	postgres.Exec(t, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second, mode) VALUES ('shop-a', 'api', 1, 1, 'deny')`)
	early := func(dsn, more string) (*Handler, chan got) {
		h, err := provision(t, `{"rules":{"dsn":`+strconv.Quote(dsn)+`},"default":{"capacity":5,"refill_per_second":1}`+more+`}`, `{"routes":["api"]}`)
		require.NoError(t, err)
		answers := make(chan got, 1)
		go func() { answers <- serves(t, h, "shop-a", "") }()
		return h, answers
	}
	start := func(h *Handler) {
		require.NoError(t, h.app.Start())
		t.Cleanup(func() {
			require.NoError(t, h.app.Stop())
			require.NoError(t, h.app.Cleanup())
		})
	}

	h, answers := early(postgres.URL(""), "")
	start(h)
	require.Equal(t, http.StatusForbidden, (<-answers).status)
	require.Equal(t, http.StatusForbidden, serves(t, h, "shop-a", "").status)

	_, answers = early(postgres.URL("never"), "")
	require.Equal(t, http.StatusOK, within(t, answers).status, "nobody starts it")

	hole := servertest.PostgresURL(servertest.BlackHole(t), "x")
	h, answers = early(hole, `,"region":{"name":"eu","auto":true}`)
	start(h)
	require.Equal(t, http.StatusOK, within(t, answers).status, "PostgreSQL is silent")
}

// within is the answer, which is to come in ten times of what a request may wait.
func within(t *testing.T, answers chan got) got {
	t.Helper()
	select {
	case answer := <-answers:
		return answer
	case <-time.After(10 * firstRulesWait):
		t.Fatal("the request waits for longer than it may")
		return got{}
	}
}
