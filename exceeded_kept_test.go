package ratelimit

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestK13EventsKeepNoBuffer sees that what subscribers get, and may keep, holds no
// more of a request than it tells.
func TestK13EventsKeepNoBuffer(t *testing.T) {
	t.Parallel()
	header := strings.Repeat(" ", 1000) + "shop"
	name := strings.TrimSpace(header)
	said := exceeded{tenant: name, clientIP: name, remoteIP: "192.0.2.1"}
	data := said.data()
	for _, field := range []string{"tenant", "client_ip"} {
		require.Equal(t, "shop", data[field])
		require.NotSame(t, unsafe.StringData(name), unsafe.StringData(data[field].(string)), field)
	}
}

// TestK13LongNames sees which tenants are told as they were sent.
func TestK13LongNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tenant string
		whole  bool
	}{
		{"shop-a", true},
		{strings.Repeat("n", longestShown), true},
		{strings.Repeat("n", longestShown+1), false},
		{strings.Repeat("\u00fc", 64), true}, // 128 bytes, and rules can name it
		{strings.Repeat("n", 500_000), false},
	} {
		c := charge{tenant: test.tenant, bucket: limit.Bucket{Key: limit.Key{Tenant: limit.EscapeName(test.tenant)}}}
		if test.whole {
			require.Equal(t, test.tenant, c.told())
		} else {
			require.Regexp(t, `^~sha256-[0-9a-f]{64}$`, c.told())
		}
	}
}
