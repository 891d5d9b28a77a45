package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// TestTopologyRefusedWithItsLine holds what a Caddyfile alone shows to be wrong.
func TestTopologyRefusedWithItsLine(t *testing.T) {
	for _, test := range []struct{ block, want string }{
		{"mode", "mode takes cluster"},
		{"mode clutser", "mode takes cluster"},
		{"mode cluster x", "mode takes cluster"},
		{"mode sentinel", "mode sentinel takes the name"},
		{"mode sentinel \"\"", "mode sentinel takes the name"},
		{"mode sentinel a b", "mode sentinel takes the name"},
		{"mode cluster\nmode cluster", "twice"},
		{"sentinel_user u\nsentinel_password p", "sentinel_user is only for mode sentinel"},
		{"mode cluster\nsentinel_password p", "sentinel_password is only for mode sentinel"},
		{"mode sentinel m\nsentinel_password", "wrong argument count: sentinel_password takes one"},
		{"mode sentinel m\nsentinel_password a secret", "wrong argument count: sentinel_password takes one"},
		{"mode sentinel m\nsentinel_password \"\"", "empty"},
	} {
		_, err := gateway.Adapt("{\n\trate_limit {\n\t\tredis redis://a {\n" + test.block + "\n}\n}\n}")
		require.ErrorContains(t, err, test.want, test.block)
		require.Contains(t, err.Error(), "Caddyfile:", test.block)
		require.NotContains(t, err.Error(), "secret", "a part of a password is not quoted")
	}
}
