package ratelimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/limit"
)

// toldOf returns how the list names a tenant that refused, and what the parameter
// stored takes for it.
func toldOf(key, tenant string) [2]string {
	top, c := hot.NewTop(time.Now), charge{tenant: tenant, bucket: limit.Bucket{Key: limit.Key{Tenant: key, Route: "a"}}}
	top.Note(c.bucket.Key, "a", c.told())
	buckets, _, _ := top.List(1)
	return [2]string{buckets[0].Tenant, adminapi.StoredName(buckets[0].Tenant, buckets[0].Key.Tenant)}
}

func TestTopNames(t *testing.T) {
	t.Parallel()
	forged := guestName + strings.Repeat("0", 64)
	for tenant, want := range map[string][2]string{
		"a/b":                    {"a/b", "a/b"},
		strings.Repeat("x", 97):  {limit.EscapeName(strings.Repeat("x", 97)), limit.EscapeName(strings.Repeat("x", 97))},
		strings.Repeat("/", 200): {limit.EscapeName(strings.Repeat("/", 200)), limit.EscapeName(strings.Repeat("/", 200))},
		strings.Repeat("€", 64):  {strings.Repeat("€", 64), strings.Repeat("€", 64)}, // may have rules
		"~guest":                 {"~guest", ""},
		"~blank":                 {"~blank", ""},
		forged:                   {forged, ""},
		"caf\xe9":                {"caf\xe9", ""},
	} {
		require.Equal(t, want, toldOf(limit.EscapeName(tenant), tenant))
	}
	require.Equal(t, [2]string{forged, forged}, toldOf(forged, forged), "a guest that is one")
}
