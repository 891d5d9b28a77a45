package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/bench/due"
)

const wrkSays = `Running 3s test @ http://127.0.0.1:10000/
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.80ms    4.10ms  57.64ms   88.03%
    Req/Sec    19.63k     2.04k   24.80k    66.67%
  117361 requests in 3.01s, 15.67MB read
Requests/sec:  39036.45
Transfer/sec:      5.21MB
{"requests":117361,"duration":3006445,"statuses":2,"connect":1,"read":2,"write":3,"timeout":4,"p50":1250,"p99":18730}
`

func TestParseShot(t *testing.T) {
	t.Parallel()
	got, err := parseShot([]byte(wrkSays))
	require.NoError(t, err)
	require.Equal(t, shot{
		requests: 117361, statuses: 2, broken: 10, took: 3006445 * time.Microsecond,
		p50: 1250 * time.Microsecond, p99: 18730 * time.Microsecond,
	}, got)
}

func TestParseShotSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ out, want string }{
		"no line":      {"Running 3s test\n", "the script's line is missing"},
		"half a line":  {"x\n{\"requests\":1", "unexpected EOF"},
		"not a number": {"x\n{\"requests\":-nan}\n", "invalid character"},
		"no answer":    {"x\n{\"requests\":0,\"duration\":3000000}\n", "no request was answered"},
	} {
		_, err := parseShot([]byte(test.out))
		require.ErrorContains(t, err, test.want, name)
	}
}

func TestShotOfOurGenerator(t *testing.T) {
	t.Parallel()
	got := shotOf(due.Report{
		Due: 100, Answered: 90, Statuses: 1, Broken: 2, Unsent: 8, Took: time.Second,
		P50: 3, P99: 4, Late50: 5, Late99: 6, CPU: 7,
	})
	require.Equal(t, shot{
		requests: 90, statuses: 1, broken: 2, took: time.Second, p50: 3, p99: 4,
		due: 100, unsent: 8, late50: 5, late99: 6, generatorCPU: 7,
	}, got)
	s := sample{shot: got}
	require.InDelta(t, 0.1, s.unanswered(), 1e-9)
	s.length = 2 * time.Second
	require.InDelta(t, 50, s.duePerSecond(), 1e-9)
	require.Zero(t, sample{shot: shot{requests: 5}}.unanswered(), "wrk has none")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	cpu, err := cpuOf("4711 (a ) b (c) S 1 4711 4711 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1000 100 10")
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, cpu)
	_, err = cpuOf("4711 (caddy) S 1")
	require.ErrorContains(t, err, "too short")

	resident, err := residentOf("Name:\tcaddy\nVmHWM:\t  9000 kB\nVmRSS:\t  1024 kB\nRssAnon:\t 1 kB\n")
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, resident)
	_, err = residentOf("Name:\tcaddy\n")
	require.ErrorContains(t, err, "VmRSS")

	self, err := usageOf("/proc/self")
	require.NoError(t, err)
	require.Positive(t, self.resident)
}

func TestCallsOf(t *testing.T) {
	t.Parallel()
	const stats = "# Commandstats\r\ncmdstat_ping:calls=12,usec=4\r\ncmdstat_evalsha:calls=345,usec=6,usec_per_call=0.1\r\n"
	for command, want := range map[string]int64{"ping": 12, "evalsha": 345, "eval": 0} {
		got, err := callsOf(stats, command)
		require.NoError(t, err)
		require.Equal(t, want, got, command)
	}
	_, err := callsOf("cmdstat_ping:calls=x,", "ping")
	require.Error(t, err)
}

func TestCountsOf(t *testing.T) {
	t.Parallel()
	got, err := countsOf(`# TYPE caddy_rate_limit_requests_total counter
caddy_rate_limit_requests_total{outcome="granted",source="local",zone="common"} 1.5e+06
caddy_rate_limit_requests_total{outcome="refused",source="local",zone="common"} 3
caddy_rate_limit_requests_total{outcome="granted",source="redis",zone="common"} 99
caddy_rate_limit_requests_total{outcome="refused",source="remembered",zone="common"} 7
caddy_rate_limit_state_changes_total{event="rate_limit_breaker_closed"} 1
caddy_rate_limit_state_changes_total{event="rate_limit_breaker_opened"} 2
`)
	require.NoError(t, err)
	require.Equal(t, counts{redis: 99, local: 1_500_003, opened: 2}, got)
	require.Equal(t, counts{redis: 90, local: 1_500_000, opened: 2}, got.minus(counts{redis: 9, local: 3}))
	_, err = countsOf("caddy_rate_limit_requests_total{source=\"local\"} many\n")
	require.Error(t, err)
}
