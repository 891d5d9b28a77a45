package cases_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// byIP limits guests by address; the proxy's header tells the client's.
func byIP(global, directive string) string {
	return gateway.Site("servers {\ntrusted_proxies static 127.0.0.1/32\n}\n"+global, gateway.Answers(directive))
}

// TestK1Collisions sends names that could run into one another, or into what keys
// and configurations are made of: each has a bucket of its own. A wildcard and a
// guest are names like any other.
func TestK1Collisions(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	const routes = "route /0 {\nrate_limit c {\nlimit 1/1000s\n}\nrespond ok\n}\nroute /1 {\nrate_limit b.c {\nlimit 1/1000s\n}\nrespond ok\n}\n"
	tenants := []string{
		"a", "a:b", "a.b", "a|b", "a/b", "a%3Ab", "a%3ab", "a%b", "a b", "a\tb", "a}", "a}b", "{a", "{", "}", "{}", "}{", "{x}", "{a}:c",
		"a:c", "a}:c", "{env.HOME}", "{http.rate_limit.tenant}", "*", "~", "~guest", "~blank", "~ip-", "~ip-unknown", "~sha256-", "é", "\xff", "A",
	}
	for name, global := range map[string]string{"redis": "redis " + redis.URL() + " {\ntimeout 5s\n}", "alone": ""} {
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", routes))
		for _, want := range []int{200, 429} {
			for _, tenant := range tenants {
				for _, path := range []string{"/0", "/1"} {
					require.Equal(t, want, g.Get(path, tenant).Status, "%s: %q on %s", name, tenant, path)
				}
			}
		}
		require.Equal(t, 401, g.Get("/0", " \t ").Status)
	}
	require.EqualValues(t, 2*len(tenants), redis.Client(t).DBSize(t.Context()).Val())
}

// TestK3GuestHash has two instances know a guest by one hash, and nobody else.
func TestK3GuestHash(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	config := byIP("rate_limit {\nguest_secret s3cret-of-the-fleet\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", "rate_limit a {\nguest ip\n"+slow(4)+"\n}")
	gateways := []*gateway.Process{gateway.Start(t, config), gateway.Start(t, config)}
	for i := range 4 {
		require.Equal(t, 3-i, gateways[i%2].From("203.0.113.7").Remaining())
	}
	require.Equal(t, 429, gateways[0].From("203.0.113.7").Status)
	restarted := gateway.Start(t, config)
	require.Equal(t, 429, restarted.From("203.0.113.7").Status)

	keys, err := redis.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Regexp(t, `^rl:\{~ip-[0-9a-f]{64}\}:a$`, keys[0])
	for _, spelling := range []string{"203.0.113.7", "203.0.113.7/32", "::ffff:203.0.113.7"} {
		sum := sha256.Sum256([]byte(spelling))
		require.NotContains(t, keys[0], hex.EncodeToString(sum[:]))
	}
	status, text := gateways[0].Load(byIP("rate_limit {\nredis "+redis.URL()+"\n}", "rate_limit a {\nguest ip\n"+slow(4)+"\n}"))
	require.Equal(t, 400, status)
	require.Contains(t, text, "guest_secret")
}

func TestK4NoKey(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, byIP("", "rate_limit a {\nguest ip\nheaders legacy\n"+slow(1)+"\n}\nheader >X-Tenant {http.rate_limit.tenant}"))
	first := g.From("203.0.113.1")
	require.Equal(t, 200, first.Status)
	require.Equal(t, 200, g.From("203.0.113.2").Status)
	require.Equal(t, 429, g.From("203.0.113.1", " ").Status, "a blank header names nobody")
	for _, name := range []string{"203.0.113.1", first.Header.Get("X-Tenant"), "~ip-unknown"} {
		require.Equal(t, 200, g.From("203.0.113.1", name).Status, "a tenant with the name %q has its own bucket", name)
	}
}

func TestK5IPv6(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, byIP("", "rate_limit a {\nguest ip\n"+slow(3)+"\n}"))
	passed := 0
	for i := range 10 {
		if g.From(fmt.Sprintf("2001:db8:0:1::%x", i+1)).Status == 200 {
			passed++
		}
	}
	require.Equal(t, 3, passed)
	require.Equal(t, 2, g.From("2001:db8:0:2::1").Remaining(), "another /64")
	require.Equal(t, 1, g.From("2001:0DB8:0000:0002::0001").Remaining(), "another spelling")
	require.Equal(t, 2, g.From("203.0.113.9").Remaining())
	require.Equal(t, 1, g.From("::ffff:203.0.113.9").Remaining(), "an IPv4 address in IPv6")
}

func TestK6NoAddress(t *testing.T) {
	t.Parallel()
	g := gateway.New(t)
	socket := g.Dir + "/socket"
	g.Start(gateway.Site("", "respond ok") + "http://localhost:80 {\nbind unix/" + socket + "\n" + gateway.Answers("rate_limit a {\nguest ip\n"+slow(2)+"\n}") + "\n}\n")
	unix := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	gateway.Eventually(t, 10*time.Second, "the socket is there", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	var statuses []int
	for range 3 {
		res, err := unix.Get("http://localhost/")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
	require.Equal(t, []int{200, 200, 429}, statuses)
	require.Equal(t, 1, strings.Count(g.Log(), "a guest has no IP address"))
}

// TestK9ForwardedFor has nobody trusted, so that a made-up address changes nothing.
func TestK9ForwardedFor(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\nguest ip\n"+slow(3)+"\n}")))
	for i := range 5 {
		require.Equal(t, max(0, 2-i), g.From(fmt.Sprintf("203.0.113.%d", i)).Remaining())
	}
}

// TestK10Memory floods the memory with guests while one is drained.
func TestK10Memory(t *testing.T) {
	t.Parallel()
	keys := 1000
	if servertest.Thorough(t, "10,000 keys instead of 1,000") {
		keys = 10_000
	}
	g := gateway.Start(t, byIP(fmt.Sprintf("rate_limit {\nmax_keys %d\n", keys)+"guest_secret 0123456789abcdef\nredis redis://"+servertest.FreeAddr(t)+"\n}", "rate_limit a {\nguest ip\n"+slow(5)+"\n}"))
	for range 5 {
		require.Equal(t, 200, g.From("203.0.113.1").Status)
	}
	require.Equal(t, 429, g.From("203.0.113.1").Status)
	for i := range 2 * keys {
		g.From(fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255))
	}
	require.Equal(t, 429, g.From("203.0.113.1").Status, "who is drained is remembered")
	require.Equal(t, 200, g.From("203.0.113.2").Status, "who is new is served")
	require.LessOrEqual(t, g.Metric(`caddy_rate_limit_keys{store="local"}`), float64(keys))
}

func TestK11MadeUpKeys(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, byIP("rate_limit {\nrule known a 1/1000s burst 9\nrule * a 1/1000s burst 7\nrule ~guest a 1/1000s burst 5\n}",
		"rate_limit a {\nguest ip\nunknown guest\n}"))
	passed := 0
	for i := range 100 {
		if g.From("203.0.113.1", fmt.Sprintf("made-up-%d", i)).Status == 200 {
			passed++
		}
	}
	require.Equal(t, 5, passed)
	require.Equal(t, 8, g.From("203.0.113.1", "known").Remaining())
	for _, name := range []string{"*", "~guest"} {
		require.Equal(t, 429, g.From("203.0.113.1", name).Status, "%s matches no row", name)
	}
	down := gateway.Start(t, gateway.Site("rate_limit {\nrules "+servertest.PostgresURL(servertest.FreeAddr(t), "x")+"\ndefault 1/s burst 5\n}", gateway.Answers("rate_limit a {\nunknown deny\n}")))
	require.Equal(t, 200, down.Get("/", "anyone").Status, "while rules are not known, nobody is unknown")

	deny := gateway.Start(t, gateway.Site("rate_limit {\nrule known a 1/s\ndefault 1/s\n}", gateway.Answers("rate_limit a {\nunknown deny\n}")))
	require.Equal(t, 401, deny.Get("/", "made-up").Status)
	require.Equal(t, 200, deny.Get("/", "known").Status)
}

// TestHashed keeps API keys out of Redis and of rules.
func TestHashed(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	sum := sha256.Sum256([]byte("shop-a"))
	hashed := hex.EncodeToString(sum[:])
	g := gateway.Start(t, gateway.Site("rate_limit {\nrule "+hashed+" a 1/1000s burst 9\ndefault 1/1000s burst 2\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}",
		gateway.Answers("rate_limit a {\ntenant {header.X-Api-Key} hashed\n}")))
	require.Equal(t, 8, g.Get("/", "shop-a").Remaining())
	keys, err := redis.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"rl:{" + hashed + "}:a"}, keys)
}

// TestMadeUpKeysWarning tells an operator that nothing checks the tenant.
func TestMadeUpKeysWarning(t *testing.T) {
	t.Parallel()
	const warning = "nothing checks the tenant"
	redis := "rate_limit {\nredis redis://" + servertest.FreeAddr(t) + "\nrule known a 1/s\n}"
	for directive, warns := range map[string]bool{
		"rate_limit a {\nlimit 1/s\n}":                                   true,
		"rate_limit a {\nlimit 1/s\nunknown default\n}":                  false,
		"rate_limit a {\nlimit 1/s\nunknown guest\n}":                    false,
		"rate_limit a {\nlimit 1/s\ntenant {http.auth.user.id}\n}":       false,
		"rate_limit a {\nlimit 1/s\ntenant {tls_client_fingerprint}\n}":  false,
		"rate_limit a {\nlimit 1/s\ntenant {header.X-Api-Key} hashed\n}": true,
	} {
		g := gateway.Start(t, gateway.Site(redis, directive))
		require.Equal(t, warns, strings.Contains(g.Log(), warning), directive)
	}
	require.NotContains(t, gateway.Start(t, gateway.Site("", "rate_limit a {\nlimit 1/s\n}")).Log(), warning, "alone, nobody shares anything")
}

// TestTenantTemplates joins several values so that no two lists make one name,
// and takes a text without any value for no tenant.
func TestTenantTemplates(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\ntenant {header.A}:{header.B}\n"+slow(9)+"\n}\nrespond {http.rate_limit.tenant}"))
	ask := func(a, b string) gateway.Reply {
		return g.Send(http.MethodGet, "/", http.Header{"A": {a}, "B": {b}})
	}
	require.Equal(t, 401, g.Get("/", "").Status)
	require.Equal(t, 401, ask(" ", "").Status)
	require.Equal(t, "x:y", ask("x", "y").Body)
	names := map[string]bool{}
	for _, pair := range [][2]string{{"x:y", "z"}, {"x", "y:z"}, {"x%3Ay", "z"}, {"x", ""}, {"", "x"}} {
		got := ask(pair[0], pair[1])
		require.Equal(t, 8, got.Remaining(), pair)
		require.False(t, names[got.Body], pair)
		names[got.Body] = true
	}
}
