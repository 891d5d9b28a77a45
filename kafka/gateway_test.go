package kafka

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// table is the table of rules, without a trigger that notifies.
const table = `CREATE TABLE rate_limit_rule (
	id BIGSERIAL PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, route_id VARCHAR(64) NOT NULL,
	capacity INT NOT NULL, refill_per_second INT NOT NULL, UNIQUE (tenant_id, route_id));
	INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'a', 1, 1)`

// gateway is a Caddy process with this module, whose rules only Kafka tells of.
type gateway struct {
	t                     testing.TB
	addr, admin, dir, dsn string
	brokers               []string
}

func startGateway(t testing.TB, postgres *servertest.PostgresServer, brokers ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, addr: servertest.FreeAddr(t), admin: servertest.FreeAddr(t), dir: t.TempDir(), dsn: postgres.URL(""), brokers: brokers}
	path := filepath.Join(g.dir, "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(g.caddyfile()), 0o600))
	cmd := exec.Command(os.Args[0], "run", "--config", path, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+g.dir, "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir, "KAFKA_BROKERS="+strings.Join(brokers, ","))
	log, err := os.Create(filepath.Join(g.dir, "log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
		require.NotContains(t, g.log(), "DATA RACE")
		require.NotContains(t, g.log(), "panic")
	})
	within(t, "the gateway serves", func() bool { return g.limit() > 0 })
	return g
}

func (g *gateway) caddyfile() string {
	return fmt.Sprintf(`{
	admin %s
	auto_https off
	persist_config off
	storage file_system %s/storage
	rate_limit {
		rules %s {
			listen off
			refresh 1h
			trigger kafka {
				brokers {env.KAFKA_BROKERS}
				topic %s
			}
		}
		default 1000/s
	}
}
http://%s {
	rate_limit a
	respond ok
}
`, g.admin, g.dir, g.dsn, topic, g.addr)
}

func (g *gateway) log() string {
	text, _ := os.ReadFile(filepath.Join(g.dir, "log"))
	return string(text)
}

// limit is the capacity in force for the tenant, 0 where nobody answers.
func (g *gateway) limit() int {
	req, err := http.NewRequest(http.MethodGet, "http://"+g.addr+"/", http.NoBody)
	require.NoError(g.t, err)
	req.Header.Set("X-Api-Key", "shop-a")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	n, _ := strconv.Atoi(res.Header.Get("X-RateLimit-Limit"))
	return n
}

// get reads from the admin API.
func (g *gateway) get(path string) string {
	g.t.Helper()
	var text []byte
	within(g.t, "the admin API answers", func() bool {
		res, err := http.Get("http://" + g.admin + path)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		text, err = io.ReadAll(res.Body)
		return err == nil
	})
	return string(text)
}

func (g *gateway) connected() bool {
	return strings.Contains(g.get("/metrics"), `caddy_rate_limit_trigger_connected{trigger="kafka"} 1`)
}

// goroutines counts those that run this module or Kafka's client.
func (g *gateway) goroutines() (total int) {
	for group := range strings.SplitSeq(g.get("/debug/pprof/goroutine?debug=1"), "\n\n") {
		count, stack, _ := strings.Cut(group, " @ ")
		if !strings.Contains(stack, "franz-go") && !strings.Contains(stack, "caddygate/ratelimit/kafka") {
			continue
		}
		n, _ := strconv.Atoi(count[strings.LastIndexByte(count, '\n')+1:])
		total += n
	}
	return total
}

// TestChangeToEffect measures the whole way of a change: an UPDATE, a message, and
// the first request that meets the new rule.
func TestChangeToEffect(t *testing.T) {
	changes := 10
	if servertest.Thorough(t, "100 changes of a rule instead of 10") {
		changes = 100
	}
	postgres := servertest.Postgres(t)
	postgres.Exec(t, table)
	cluster := newCluster(t)
	client := producer(t, cluster)
	g := startGateway(t, postgres, cluster.ListenAddrs()...)
	within(t, "the trigger listens", g.connected)
	within(t, "the rules are loaded", func() bool { return g.limit() == 1 })
	took := make([]time.Duration, 0, changes)
	for i := range changes {
		// A load begins at most every half second, which is not what is measured.
		time.Sleep(600 * time.Millisecond)
		began := time.Now()
		postgres.Exec(t, "UPDATE rate_limit_rule SET capacity = $1", i+2)
		produce(t, client, int32(i%3))
		for g.limit() != i+2 {
			require.Less(t, time.Since(began), 20*time.Second, g.log())
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("%d changes: p50 %v, p99 %v, most %v", changes, took[changes/2], took[(changes*99+99)/100-1], took[changes-1])
	require.Contains(t, g.get("/metrics"), `caddy_rate_limit_rules_triggered_total{trigger="kafka"}`)
}

// TestGatewayWithoutBroker serves, reloads without a leak, and follows as soon as
// there is a broker.
func TestGatewayWithoutBroker(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t)
	postgres.Exec(t, table)
	addr := servertest.FreeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	g := startGateway(t, postgres, addr)
	within(t, "the rules are loaded", func() bool { return g.limit() == 1 })
	require.False(t, g.connected())
	postgres.Exec(t, "UPDATE rate_limit_rule SET capacity = 2")

	cluster := newCluster(t, kfake.NumBrokers(1), kfake.Ports(number))
	within(t, "the trigger listens", g.connected)
	within(t, "what was missed is made up for", func() bool { return g.limit() == 2 })

	level := g.goroutines()
	require.Positive(t, level)
	for range 5 {
		res, err := http.Post("http://"+g.admin+"/load", "text/caddyfile", strings.NewReader(g.caddyfile()+"# "+time.Now().String()+"\n"))
		require.NoError(t, err)
		res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	within(t, "no goroutine is left of the old configs", func() bool { return g.connected() && g.goroutines() <= level })
	postgres.Exec(t, "UPDATE rate_limit_rule SET capacity = 3")
	produce(t, producer(t, cluster), 0)
	within(t, "the change is in force", func() bool { return g.limit() == 3 })
}
