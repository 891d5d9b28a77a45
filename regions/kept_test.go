package regions

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestK13DemandKeepsNoBuffer sees that a limit's name is counted without the header
// that it was a small part of.
func TestK13DemandKeepsNoBuffer(t *testing.T) {
	t.Parallel()
	header := strings.Repeat(" ", 1000) + "shop"
	name := strings.TrimSpace(header)
	c := newCounter()
	c.add(limit.Key{Tenant: name, Route: "a"}, 1)
	drained := c.drain(10)
	require.Equal(t, []Demand{{Key: limit.Key{Tenant: "shop", Route: "a"}, Units: 1}}, drained)
	require.NotSame(t, unsafe.StringData(name), unsafe.StringData(drained[0].Key.Tenant))
}
