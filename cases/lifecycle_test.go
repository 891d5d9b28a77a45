package cases_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/rulecache"
)

// stores are a Redis and a PostgreSQL with the table.
func stores(t *testing.T) (*servertest.RedisServer, *servertest.PostgresServer, string) {
	t.Helper()
	redis, postgres := servertest.Redis(t), servertest.Postgres(t)
	database := postgres.CreateDatabase(t)
	postgres.ExecIn(t, database, rulecache.Schema(rulecache.DefaultTable, rulecache.DefaultChannel))
	return redis, postgres, database
}

// clientsOf lists the IDs of the connections that Redis has, but for the one that asks.
func clientsOf(t *testing.T, redis *servertest.RedisServer) []string {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: redis.Addr})
	defer client.Close()
	self, err := client.ClientID(t.Context()).Result()
	require.NoError(t, err)
	list, err := client.ClientList(t.Context()).Result()
	require.NoError(t, err)
	var ids []string
	for line := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
		id, _, _ := strings.Cut(line, " ")
		if id != fmt.Sprintf("id=%d", self) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// backends counts the sessions of gateways.
func backends(t *testing.T, postgres *servertest.PostgresServer, database string) int {
	t.Helper()
	return postgres.QueryInt(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, database)
}

// backend returns the process of the session that has been there for longest.
func backend(t *testing.T, postgres *servertest.PostgresServer, database string) int {
	t.Helper()
	return postgres.QueryInt(t, `SELECT pid FROM pg_stat_activity WHERE datname = $1 ORDER BY backend_start LIMIT 1`, database)
}

func TestL1RejectedReload(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	good := gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL(database)+"\nfallback local\n}",
		gateway.Answers("rate_limit a {\n"+slow(1000)+"\nguest deny\n}"))
	g := gateway.Start(t, good)
	require.Equal(t, "redis", g.Get("/", "t1").Source())
	gateway.Eventually(t, 5*time.Second, "the listener is there", func() bool { return backends(t, postgres, database) == 1 })
	time.Sleep(300 * time.Millisecond) // the connections that Start makes are all there
	before, config, listener := clientsOf(t, redis), g.AdminGet("/config/"), backend(t, postgres, database)

	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer occupied.Close()
	_, port, _ := net.SplitHostPort(g.Addr)
	bad := map[string]string{
		"before the pools": strings.Replace(config, `"fallback":"local"`, `"fallback":"nonsense"`, 1),
		"after the pools":  strings.Replace(config, `"limits":[{"capacity":1000,"refill_per_second":0.001}],`, "", 1),
		"in Validate":      strings.Replace(config, `"guest":"deny"`, `"guest":"nonsense"`, 1),
		"in Start":         strings.Replace(config, `"listen":[":`+port+`"]`, `"listen":["`+occupied.Addr().String()+`"]`, 1),
	}
	for name, config := range bad {
		require.NotEqual(t, g.AdminGet("/config/"), config, name)
		for range 5 {
			status, text := g.Post("/load", "application/json", config)
			require.Equal(t, 400, status, "%s: %s", name, text)
			require.NotContains(t, text, "unknown field")
		}
		require.Equal(t, "redis", g.Get("/", "t1").Source(), name)
	}
	require.Equal(t, before, clientsOf(t, redis), "the same connections")
	require.Equal(t, 1, backends(t, postgres, database))
	require.Equal(t, listener, backend(t, postgres, database), "the same session")
}

func TestL2Metrics(t *testing.T) {
	t.Parallel()
	both := "route {\nrate_limit a {\n" + slow(100000) + "\n}\nrate_limit b {\n" + slow(100000) + "\n}\nrespond ok\n}"
	g := gateway.New(t)
	_, port, _ := net.SplitHostPort(g.Addr)
	other := g.At("127.0.0.2:" + port)
	config := gateway.Site("", both) + "http://" + other.Addr + " {\n" + both + "\n}\n"
	g.Start(config)
	for round := range 20 {
		g.Reload(config)
		for _, asked := range []*gateway.Process{g, other, g} {
			require.Equal(t, 200, asked.Get("/", "t1").Status)
		}
		for _, zone := range []string{"a", "b"} {
			series := `caddy_rate_limit_requests_total{outcome="granted",source="local",zone="` + zone + `"}`
			require.EqualValues(t, 3*(round+1), g.Metric(series))
			require.Equal(t, 1, strings.Count(g.AdminGet("/metrics"), series))
		}
	}
	require.Equal(t, 1, strings.Count(g.AdminGet("/metrics"), `caddy_rate_limit_process_time_seconds_count{zone="a"}`))
}

func TestL3OneOfEach(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	// Where nobody announces changes, every refresh is a poll.
	postgres.ExecIn(t, database, "DROP TRIGGER rate_limit_notify ON rate_limit_rule")
	body := strings.Builder{}
	for i := range 100 {
		fmt.Fprintf(&body, "route /%d {\nrate_limit r%d\nrespond ok\n}\n", i, i)
	}
	for i := range 30 {
		fmt.Fprintf(&body, "route /same/%d {\nrate_limit same\nrespond ok\n}\n", i)
	}
	global := "rate_limit {\nredis " + redis.URL() + "\nrules " + postgres.URL(database) + " {\nrefresh 1s\n}\ndefault 1/1000s burst 10\n}"
	g := gateway.Start(t, gateway.Site(global, body.String()))
	for i := range 100 {
		require.Equal(t, 200, g.Get(fmt.Sprintf("/%d", i), "t1").Status)
	}
	gateway.Eventually(t, 5*time.Second, "one session of PostgreSQL", func() bool { return backends(t, postgres, database) == 1 })
	require.LessOrEqual(t, len(clientsOf(t, redis)), 20, "one pool")
	began, before := time.Now(), digests(t, postgres)
	polls := func() int { return digests(t, postgres) - before }
	gateway.Eventually(t, 60*time.Second, "five polls", func() bool { return polls() >= 5 })
	count, took := polls(), time.Since(began)
	t.Logf("%d polls in %v", count, took)
	require.LessOrEqual(t, count, 2+int(took/(800*time.Millisecond)), "one poll each refresh, at the earliest a fifth sooner")

	redis.Kill(t)
	passed := 0
	for i := range 30 {
		if g.Get(fmt.Sprintf("/same/%d", i), "t1").Status == 200 {
			passed++
		}
	}
	require.Equal(t, 10, passed, "one bucket for all handlers of a route")
}

// digests counts how often the table was asked for changes.
func digests(t *testing.T, postgres *servertest.PostgresServer) (count int) {
	t.Helper()
	for _, statement := range postgres.Statements(t) {
		if strings.HasPrefix(statement.Text, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY") {
			count++
		}
	}
	return count
}

func TestL4Leaks(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	config := gateway.Site("rate_limit {\nredis "+redis.URL()+"\nrules "+postgres.URL(database)+"\n}", gateway.Answers("rate_limit a {\n"+slow(100000)+"\n}"))
	g := gateway.Start(t, config)
	done, ended := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	defer end()
	var bad atomic.Int64
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			if got, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"t1"}}); err == nil && got.Status != 200 && got.Status != 429 {
				bad.Add(1)
			}
		}
	}()
	for range 5 {
		g.Reload(config)
	}
	sockets := settledClients(t, redis)
	goroutines, descriptors, heap := g.Goroutines(), g.Descriptors(), g.Heap()
	for range 50 {
		g.Reload(config)
	}
	t.Logf("goroutines %d to %d, descriptors %d to %d, heap %d to %d KB",
		goroutines, g.Goroutines(), descriptors, g.Descriptors(), heap>>10, g.Heap()>>10)
	// A request more or less is under way, and what was replaced is closed soon.
	gateway.Eventually(t, 20*time.Second, "goroutines as before", func() bool { return g.Goroutines() <= goroutines+3 })
	gateway.Eventually(t, 20*time.Second, "descriptors as before", func() bool { return g.Descriptors() <= descriptors+3 })
	gateway.Eventually(t, 20*time.Second, "heap as before", func() bool { return g.Heap() <= heap+heap/4 })
	end()
	require.Zero(t, bad.Load())
	// A busy machine has more connections for a while; a leak would be fifty.
	gateway.Eventually(t, 20*time.Second, "connections as before", func() bool { return len(clientsOf(t, redis)) <= sockets+10 })
	require.Equal(t, 1, backends(t, postgres, database))
}

// TestL5LateRequests has a request meet a limit for the first time when its
// config, and the last that used its Redis, are gone.
func TestL5LateRequests(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	arrived, leave := make(chan struct{}, 10), make(chan struct{})
	release := sync.OnceFunc(func() { close(leave) })
	defer release()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-leave
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\nrules "+postgres.URL(database)+"\ndefault 1/1000s burst 5\n}", `
		rate_limit a
		reverse_proxy `+to+`
		handle_errors {
			rate_limit late {
				limit 1/1000s burst 3
			}
			header >X-Source {http.rate_limit.source}
			respond "late"
		}`))
	answer := make(chan gateway.Reply, 1)
	go func() { answer <- g.Get("/", "t1") }()
	<-arrived
	g.Reload(gateway.Site("", "respond ok"))
	gateway.Eventually(t, 10*time.Second, "Redis is let go", func() bool { return len(clientsOf(t, redis)) == 0 })
	release()
	got := <-answer
	require.Equal(t, "late", got.Body)
	require.Equal(t, []any{"local", 3, 2}, []any{got.Source(), got.Field("X-RateLimit-Limit"), got.Remaining()})
	require.Equal(t, []string{"rl:{t1}:a"}, redis.Client(t).Keys(t.Context(), "*").Val(), "Redis decided only before")
}

func TestL6ValidateTouchesNothing(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	check := func(redisURL, rulesURL string) time.Duration {
		g := gateway.New(t)
		path := g.Dir + "/Caddyfile"
		writeFile(t, path, g.Fill(gateway.Site("rate_limit {\nredis "+redisURL+"\nrules "+rulesURL+"\ndefault 1/s\n}", "rate_limit a")))
		began := time.Now()
		out, err := g.Command("validate", "--config", path, "--adapter", "caddyfile").CombinedOutput()
		require.NoError(t, err, string(out))
		return time.Since(began)
	}
	connections := func() int64 {
		info, err := redis.Client(t).InfoMap(t.Context(), "stats").Result()
		require.NoError(t, err)
		var n int64
		_, err = fmt.Sscan(info["Stats"]["total_connections_received"], &n)
		require.NoError(t, err)
		return n
	}
	statements := len(postgres.Statements(t))
	before := connections()
	check(redis.URL(), postgres.URL(database))
	require.Equal(t, before+1, connections(), "only the connection that asks")
	require.Len(t, postgres.Statements(t), statements)
	for name, addr := range map[string]string{"refusing": servertest.FreeAddr(t), "a black hole": servertest.BlackHole(t)} {
		took := check("redis://"+addr+"/0", servertest.PostgresURL(addr, "x"))
		require.Less(t, took, 20*time.Second)
		t.Logf("caddy validate took %v with stores that are %s", took, name)
	}
}

// TestO1SameConfigFromJSON runs a Caddyfile from the JSON that it adapts to: the
// same config is in force, and does what the Caddyfile says.
func TestO1SameConfigFromJSON(t *testing.T) {
	t.Parallel()
	redis, postgres := servertest.RedisTLS(t), servertest.Postgres(t)
	postgres.Exec(t, rulecache.Schema("limits", "limits_changed"))
	postgres.Exec(t, `INSERT INTO limits (tenant_id, route_id, capacity, refill_per_second) VALUES ('t2', 'a', 7, 0.001)`)
	g := gateway.Start(t, gateway.Site("", "respond ok"))
	config, err := gateway.Adapt(g.Fill(gateway.Site(`rate_limit {
		redis `+redis.URL()+` {
			key_prefix gate
			timeout 5s
			dial_timeout 2s
			breaker 7 2s
			tls {
				ca `+redis.Certificate.CertFile+`
				cert `+redis.Certificate.CertFile+`
				key `+redis.Certificate.KeyFile+`
				server_name localhost
			}
		}
		rules `+postgres.URL("")+` {
			table limits
			refresh 2s
			channel limits_changed
			listen on
			max_rules 1000
		}
		rule shop-a a 1/1000s burst 3 algorithm sliding_window_log mode enforce
		rule * b 1/1000s burst 2 algorithm sliding_window_counter
		default 1/1000s burst 9
		instances 3
		fallback deny
		headers legacy
		reset delta
		max_keys 5000
		guest_secret s3cret-of-the-fleet
	}`, gateway.Answers(`rate_limit /limited* a b {
		tenant {header.X-Api-Key} hashed
		guest ip
		ipv4_prefix 24
		ipv6_prefix 56
		unknown default
		limit 1/1000s burst 4 a
		limit 1/1000s burst 5
		algorithm token_bucket
		cost 1
		headers legacy
		log_key
	}
	rate_limit a`))))
	require.NoError(t, err)
	status, text := g.Post("/load", "application/json", string(config))
	require.Equal(t, http.StatusOK, status, text)
	require.JSONEq(t, string(config), g.AdminGet("/config/"))

	gateway.Eventually(t, 10*time.Second, "the rules are known", func() bool { return g.Metric("caddy_rate_limit_rules") == 1 })
	for tenant, capacity := range map[string]int{"shop-a": 3, "t1": 9, "t2": 7} {
		got := g.Get("/", tenant)
		require.Equal(t, []any{200, "redis", capacity}, []any{got.Status, got.Source(), got.Field("X-RateLimit-Limit")}, tenant)
	}
	for i, want := range []int{200, 200, 429} {
		require.Equal(t, want, g.Get("/limited", "t3").Status, i)
	}
}

// TestReloadOfAConnection changes a setting of the connection in each reload, so
// that the clients of the old config and the new one differ. Requests that the old
// one still has are decided in Redis by the new one.
func TestReloadOfAConnection(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	config := func(i int) string {
		return gateway.Site(fmt.Sprintf("rate_limit {\nredis %s {\ntimeout 1s\ndial_timeout %dms\n}\n}", redis.URL(), 900+i%2), gateway.Answers("rate_limit a {\n"+slow(50)+"\n}"))
	}
	g := gateway.Start(t, config(0))
	done := make(chan struct{})
	var passed atomic.Int64
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if got, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {"t1"}}); err == nil && got.Status == 200 {
					passed.Add(1)
				}
			}
		})
	}
	for i := range 30 {
		g.Reload(config(i + 1))
	}
	close(done)
	wait.Wait()
	t.Logf("%d passed of a limit of 50 over 30 reloads", passed.Load())
	require.InDelta(t, 50, passed.Load(), 5)
}
