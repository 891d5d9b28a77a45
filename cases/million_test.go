package cases_test

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// TestAMillionRules imports rules, loads them into a gateway that answers requests,
// and refreshes them after single changes, and reports how long each takes, what
// memory the gateway needs, and how long requests took meanwhile: with 20,000 rules,
// or in full with a million.
func TestAMillionRules(t *testing.T) {
	size, pause := 20_000, time.Second
	if servertest.Thorough(t, "a million rules instead of 20,000") {
		size, pause = 1_000_000, 15*time.Second
	}
	server := servertest.Postgres(t)
	g := gateway.New(t, "RULES_URL="+server.URL(""))
	schema, err := g.Command("rate-limit", "schema").Output()
	require.NoError(t, err)
	server.Exec(t, string(schema))
	g.Start(gateway.Site("rate_limit {\nrules {env.RULES_URL}\ndefault 1000000/s\n}", "rate_limit a\nrespond ok"))
	gateway.Eventually(t, 10*time.Second, "the empty table is read", func() bool { return strings.Contains(g.Log(), "rules loaded") })
	empty := g.Heap()
	file := ruleFile(t, size)

	load := startLoad(t, g)
	time.Sleep(pause)
	load.phase("without rules")
	began := time.Now()
	code, out, errs := importing(t, g, "", "--dsn", "{env.RULES_URL}", "--yes", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, fmt.Sprintf("%d inserted", size))
	t.Logf("%d rules: import %v", size, time.Since(began).Round(time.Millisecond))
	committed := time.Now()
	load.phase("during the import")
	limitOf := func(n int) int { return g.Get("/", tenantName(n)).Field("X-RateLimit-Limit") }
	gateway.Eventually(t, 2*time.Minute, "the rules are loaded", func() bool { return limitOf(size-1) == capacityOf(size-1) })
	t.Logf("%d rules: load %v", size, time.Since(committed).Round(time.Millisecond))
	load.phase("during the load")
	time.Sleep(pause)
	load.phase("with the rules, at rest")
	for i := range 3 {
		began = time.Now()
		server.Exec(t, "UPDATE rate_limit_rule SET capacity = $1 WHERE tenant_id = $2", 5000+i, tenantName(i))
		gateway.Eventually(t, 2*time.Minute, "the change is in force", func() bool { return limitOf(i) == 5000+i })
		t.Logf("%d rules: refresh after one change %v", size, time.Since(began).Round(time.Millisecond))
	}
	load.phase("during three refreshes")
	time.Sleep(pause)
	load.phase("with the rules, at rest again")
	load.stop()
	t.Logf("%d rules: heap %d MB (%d MB without), most resident ever %s", size, g.Heap()>>20, empty>>20, residentPeak(t, g))
	for n := 0; n < size; n += size / 10 {
		if n > 2 {
			require.Equal(t, capacityOf(n), limitOf(n))
		}
	}
}

func tenantName(n int) string { return fmt.Sprintf("tenant-%016d", n) }

func capacityOf(n int) int { return n%1000 + 1 }

// ruleFile writes a rule for each of as many tenants.
func ruleFile(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.csv")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	text := bufio.NewWriter(file)
	fmt.Fprintln(text, "tenant_id,route_id,capacity,refill_per_second,mode")
	for n := range size {
		fmt.Fprintf(text, "%s,a,%d,%d,enforce\n", tenantName(n), capacityOf(n), n%1000+1)
	}
	require.NoError(t, text.Flush())
	return path
}

// steadyLoad asks a gateway at a fixed rate and notes how long each answer took,
// counted from when the request was due.
type steadyLoad struct {
	t     *testing.T
	done  chan struct{}
	group sync.WaitGroup

	mu   sync.Mutex
	took []time.Duration
}

// loadRate is requests per second, over four clients.
const loadRate = 800

func startLoad(t *testing.T, g *gateway.Process) *steadyLoad {
	l := &steadyLoad{t: t, done: make(chan struct{})}
	for worker := range 4 {
		l.group.Go(func() { l.ask(g, worker) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *steadyLoad) ask(g *gateway.Process, worker int) {
	const interval = 4 * time.Second / loadRate
	due := time.Now().Add(time.Duration(worker) * interval / 4)
	for n := 0; ; n++ {
		select {
		case <-l.done:
			return
		case <-time.After(time.Until(due)):
		}
		r, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {tenantName(n * 7)}})
		took := time.Since(due)
		due = due.Add(interval)
		if err != nil || r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests {
			l.t.Errorf("status %d: %v", r.Status, err)
			return
		}
		l.mu.Lock()
		l.took = append(l.took, took)
		l.mu.Unlock()
	}
}

// phase reports the requests since the last one.
func (l *steadyLoad) phase(name string) {
	l.mu.Lock()
	took := l.took
	l.took = nil
	l.mu.Unlock()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	at := func(part float64) time.Duration {
		return took[int(part*float64(len(took)-1))].Round(10 * time.Microsecond)
	}
	l.t.Logf("%-29s %6d requests: p50 %v, p99 %v, p99.9 %v, most %v", name, len(took), at(0.5), at(0.99), at(0.999), at(1))
}

func (l *steadyLoad) stop() {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	l.group.Wait()
}

// residentPeak is the most memory that the process ever had, as Linux tells it.
func residentPeak(t *testing.T, g *gateway.Process) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(g.Cmd.Process.Pid) + "/status")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
