package gateway

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// Metric returns the value of a series, written as Prometheus writes it. One that
// is not there fails the test.
func (g *Process) Metric(series string) float64 {
	g.t.Helper()
	name, _, _ := strings.Cut(series, "{")
	family := g.Family(name)
	require.Contains(g.t, family, series)
	return family[series]
}

// Family returns the series of a metric by how Prometheus writes them. A counter
// with labels has none before it counts, and is not listed at all.
func (g *Process) Family(name string) map[string]float64 {
	g.t.Helper()
	family := map[string]float64{}
	for line := range strings.SplitSeq(g.AdminGet("/metrics"), "\n") {
		end := strings.LastIndexByte(line, ' ')
		if end < 0 || line[:end] != name && !strings.HasPrefix(line, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(line[end+1:], 64)
		require.NoError(g.t, err)
		family[line[:end]] = n
	}
	return family
}

func (g *Process) Instances() int { return int(g.Metric("caddy_rate_limit_instances")) }

// BreakerOpen returns what is told of the one breaker: 1 while it is open.
func (g *Process) BreakerOpen() float64 {
	g.t.Helper()
	family := g.Family("caddy_rate_limit_breaker_open")
	require.Len(g.t, family, 1)
	for _, value := range family {
		return value
	}
	return 0
}

// RedisErrors returns how many decisions Redis could not make, by reason.
func (g *Process) RedisErrors() map[string]float64 {
	g.t.Helper()
	const name = "caddy_rate_limit_redis_errors_total"
	reasons := map[string]float64{}
	for series, n := range g.Family(name) {
		if n == 0 {
			continue // made before it counts
		}
		reasons[strings.TrimSuffix(strings.TrimPrefix(series, name+`{reason="`), `"}`)] = n
	}
	return reasons
}

// Heap returns the bytes that are reachable in the gateway after a collection.
func (g *Process) Heap() int {
	g.t.Helper()
	_, rest, found := strings.Cut(g.AdminGet("/debug/pprof/heap?gc=1&debug=1"), "# HeapAlloc = ")
	require.True(g.t, found)
	digits, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(digits)
	require.NoError(g.t, err)
	return n
}

// Goroutines counts those of the gateway that run this module's code. Others
// come and go with the connections of clients and upstreams.
func (g *Process) Goroutines() (total int) {
	g.t.Helper()
	for group := range strings.SplitSeq(g.AdminGet("/debug/pprof/goroutine?debug=1"), "\n\n") {
		count, stack, _ := strings.Cut(group, " @ ")
		if !strings.Contains(stack, "caddygate/ratelimit/") && !strings.Contains(stack, "caddygate/ratelimit.") {
			continue
		}
		n, err := strconv.Atoi(count[strings.LastIndexByte(count, '\n')+1:])
		require.NoError(g.t, err)
		total += n
	}
	return total
}

// Descriptors counts the open files and sockets of the gateway.
func (g *Process) Descriptors() int {
	g.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.Cmd.Process.Pid))
	require.NoError(g.t, err)
	return len(entries)
}
