package ratelimit

import (
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

// TestRefusedErrorIsLikeCaddys: handle_errors and logs find in it what they find
// in an error that Caddy makes.
func TestRefusedErrorIsLikeCaddys(t *testing.T) {
	ours, caddys := error(refusedError()), error(caddyhttp.Error(http.StatusTooManyRequests, errExceeded))
	require.ErrorIs(t, ours, errExceeded)
	var our, caddy caddyhttp.HandlerError
	require.ErrorAs(t, ours, &our)
	require.ErrorAs(t, caddys, &caddy)
	require.Equal(t, caddy.StatusCode, our.StatusCode)
	require.Len(t, our.ID, len(caddy.ID))
	require.NotEqual(t, our.ID, refusedError().ID)
	require.Regexp(t, `^\S+ \([a-z_]+\.go(:\d+)?\)$`, our.Trace)
	require.Regexp(t, `^\S+ \([a-z_]+\.go(:\d+)?\)$`, caddy.Trace)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { ours = refusedError() }), 2.0)
}

func TestErrorIDsAreWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, "aaaaaaaaa", errorID(0))
	seen := make(map[string]bool)
	for range 1000 {
		id := errorID(rand.Uint64())
		require.Regexp(t, `^[a-km-np-z2-9]{9}$`, id)
		seen[id] = true
	}
	require.Len(t, seen, 1000)
}
