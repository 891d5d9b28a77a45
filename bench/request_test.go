package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// served is a gateway that is no Caddy.
func served(t *testing.T, serve http.HandlerFunc) *gateway {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return &gateway{process: &process{name: "made up"}, addrs: [answers]string{strings.TrimPrefix(server.URL, "http://")}}
}

func TestTouchSendsEachTenantOnce(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	var count atomic.Int64
	g := served(t, func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("X-Api-Key"), true)
		count.Add(1)
	})
	require.NoError(t, g.touch(t.Context(), 300))
	require.EqualValues(t, 300, count.Load())
	for _, tenant := range []string{"tenant-0", "tenant-299"} {
		_, found := seen.Load(tenant)
		require.True(t, found, tenant)
	}
	broken := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	require.ErrorContains(t, broken.touch(t.Context(), 300), "made up: the status was 418")
}

func TestDrainEndsWithARefusal(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	limited := served(t, func(w http.ResponseWriter, _ *http.Request) {
		if count.Add(1) > 150 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	require.NoError(t, limited.drain(t.Context()))
	require.Greater(t, count.Load(), int64(150))
	open := served(t, func(http.ResponseWriter, *http.Request) {})
	require.ErrorContains(t, open.drain(t.Context()), "it refuses nobody")
}
