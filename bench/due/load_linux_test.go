package due

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// served is the address of a gateway that is no Caddy.
func served(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// On a busy machine requests wait, so these tests have a connection for each.

func TestEachRequestIsSentAndAnswered(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	addr := served(t, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("X-Api-Key"), true)
		if _, err := fmt.Fprint(w, "ok"); err != nil {
			t.Error(err)
		}
	})
	report, err := Run(t.Context(), Load{Addr: addr, Tenants: 10, PerSecond: 200, Length: time.Second, Connections: 200})
	require.NoError(t, err)
	require.Equal(t, []int{200, 200, 0, 0, 0}, []int{report.Due, report.Answered, report.Statuses, report.Broken, report.Unsent})
	require.GreaterOrEqual(t, report.Took, 995*time.Millisecond, "none is sent before it is due")
	require.Positive(t, report.P50)
	require.GreaterOrEqual(t, report.P99, report.P50)
	require.GreaterOrEqual(t, report.Late99, report.Late50)
	require.Positive(t, report.CPU)
	for _, tenant := range []string{"tenant-0", "tenant-9"} {
		_, found := seen.Load(tenant)
		require.True(t, found, tenant)
	}
}

func TestWhatWaitsForAConnectionHasWaited(t *testing.T) {
	t.Parallel()
	// One connection, and 20 ms for each answer: of 100 requests that are due in a
	// second, half cannot be sent, and the later they are the longer they wait.
	addr := served(t, func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) })
	report, err := Run(t.Context(), Load{Addr: addr, Tenants: 1, PerSecond: 100, Length: time.Second, Connections: 1})
	require.NoError(t, err)
	require.Equal(t, 100, report.Answered+report.Unsent)
	require.LessOrEqual(t, report.Answered, 51)
	require.GreaterOrEqual(t, report.P99, 400*time.Millisecond)
	require.Zero(t, report.Broken)
}

func TestStatusesAndBrokenConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	var count atomic.Int64
	addr := served(t, func(w http.ResponseWriter, _ *http.Request) {
		switch count.Add(1) % 4 {
		case 0:
			w.WriteHeader(http.StatusTooManyRequests)
		case 1:
			panic(http.ErrAbortHandler)
		}
	})
	report, err := Run(t.Context(), Load{Addr: addr, Tenants: 1, PerSecond: 200, Length: time.Second, Connections: 200})
	require.NoError(t, err)
	require.Equal(t, []int{150, 50, 50}, []int{report.Answered, report.Statuses, report.Broken})
}

func TestConnectionsThatEndIdleAreOpenedAnew(t *testing.T) {
	t.Parallel()
	addr := served(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	report, err := Run(t.Context(), Load{Addr: addr, Tenants: 1, PerSecond: 20, Length: time.Second, Connections: 20})
	require.NoError(t, err)
	require.Equal(t, 20, report.Answered+report.Broken)
	require.Positive(t, report.Answered)
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = Run(ctx, Load{Addr: listener.Addr().String(), Tenants: 1, PerSecond: 10, Length: 100 * time.Millisecond, Connections: 2})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, listener.Close())
	_, err = Run(t.Context(), Load{Addr: listener.Addr().String(), Tenants: 1, PerSecond: 10, Length: time.Second, Connections: 2})
	require.ErrorContains(t, err, "connecting to 127.0.0.1:")
}
