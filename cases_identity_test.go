package ratelimit_test

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

	"github.com/caddygate/ratelimit/internal/servertest"
)

// byIP limits guests by address; the proxy's header tells the client's.
func byIP(global, directive string) string {
	return site("servers {\ntrusted_proxies static 127.0.0.1/32\n}\n"+global, answers(directive))
}

// from sends a request as a client with that address.
func (g *gateway) from(address string, tenant ...string) reply {
	g.t.Helper()
	header := http.Header{"X-Forwarded-For": {address}}
	if len(tenant) > 0 {
		header["X-Api-Key"] = tenant
	}
	return g.send(http.MethodGet, "/", header)
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
		g := startGateway(t, site("rate_limit {\n"+global+"\n}", routes))
		for _, want := range []int{200, 429} {
			for _, tenant := range tenants {
				for _, path := range []string{"/0", "/1"} {
					require.Equal(t, want, g.get(path, tenant).status, "%s: %q on %s", name, tenant, path)
				}
			}
		}
		require.Equal(t, 401, g.get("/0", " \t ").status)
	}
	require.EqualValues(t, 2*len(tenants), redis.Client(t).DBSize(t.Context()).Val())
}

// TestK3GuestHash has two instances know a guest by one hash, and nobody else.
func TestK3GuestHash(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	config := byIP("rate_limit {\nguest_secret s3cret-of-the-fleet\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}", "rate_limit a {\nguest ip\n"+slow(4)+"\n}")
	gateways := []*gateway{startGateway(t, config), startGateway(t, config)}
	for i := range 4 {
		require.Equal(t, 3-i, gateways[i%2].from("203.0.113.7").remaining())
	}
	require.Equal(t, 429, gateways[0].from("203.0.113.7").status)
	restarted := startGateway(t, config)
	require.Equal(t, 429, restarted.from("203.0.113.7").status)

	keys, err := redis.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Regexp(t, `^rl:\{~ip-[0-9a-f]{64}\}:a$`, keys[0])
	for _, spelling := range []string{"203.0.113.7", "203.0.113.7/32", "::ffff:203.0.113.7"} {
		sum := sha256.Sum256([]byte(spelling))
		require.NotContains(t, keys[0], hex.EncodeToString(sum[:]))
	}
	status, text := gateways[0].load(byIP("rate_limit {\nredis "+redis.URL()+"\n}", "rate_limit a {\nguest ip\n"+slow(4)+"\n}"))
	require.Equal(t, 400, status)
	require.Contains(t, text, "guest_secret")
}

func TestK4NoKey(t *testing.T) {
	t.Parallel()
	g := startGateway(t, byIP("", "rate_limit a {\nguest ip\nheaders legacy\n"+slow(1)+"\n}\nheader >X-Tenant {http.rate_limit.tenant}"))
	first := g.from("203.0.113.1")
	require.Equal(t, 200, first.status)
	require.Equal(t, 200, g.from("203.0.113.2").status)
	require.Equal(t, 429, g.from("203.0.113.1", " ").status, "a blank header names nobody")
	for _, name := range []string{"203.0.113.1", first.header.Get("X-Tenant"), "~ip-unknown"} {
		require.Equal(t, 200, g.from("203.0.113.1", name).status, "a tenant with the name %q has its own bucket", name)
	}
}

func TestK5IPv6(t *testing.T) {
	t.Parallel()
	g := startGateway(t, byIP("", "rate_limit a {\nguest ip\n"+slow(3)+"\n}"))
	passed := 0
	for i := range 10 {
		if g.from(fmt.Sprintf("2001:db8:0:1::%x", i+1)).status == 200 {
			passed++
		}
	}
	require.Equal(t, 3, passed)
	require.Equal(t, 2, g.from("2001:db8:0:2::1").remaining(), "another /64")
	require.Equal(t, 1, g.from("2001:0DB8:0000:0002::0001").remaining(), "another spelling")
	require.Equal(t, 2, g.from("203.0.113.9").remaining())
	require.Equal(t, 1, g.from("::ffff:203.0.113.9").remaining(), "an IPv4 address in IPv6")
}

func TestK6NoAddress(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	socket := g.dir + "/socket"
	g.start(site("", "respond ok") + "http://localhost:80 {\nbind unix/" + socket + "\n" + answers("rate_limit a {\nguest ip\n"+slow(2)+"\n}") + "\n}\n")
	unix := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	eventually(t, 10*time.Second, "the socket is there", func() bool {
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
	require.Equal(t, 1, strings.Count(g.log(), "a guest has no IP address"))
}

// TestK9ForwardedFor has nobody trusted, so that a made-up address changes nothing.
func TestK9ForwardedFor(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", answers("rate_limit a {\nguest ip\n"+slow(3)+"\n}")))
	for i := range 5 {
		require.Equal(t, max(0, 2-i), g.from(fmt.Sprintf("203.0.113.%d", i)).remaining())
	}
}

// TestK10Memory floods the memory with guests while one is drained.
func TestK10Memory(t *testing.T) {
	t.Parallel()
	g := startGateway(t, byIP("rate_limit {\nmax_keys 10000\nguest_secret 0123456789abcdef\nredis redis://"+servertest.FreeAddr(t)+"\n}", "rate_limit a {\nguest ip\n"+slow(5)+"\n}"))
	for range 5 {
		require.Equal(t, 200, g.from("203.0.113.1").status)
	}
	require.Equal(t, 429, g.from("203.0.113.1").status)
	for i := range 20_000 {
		g.from(fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255))
	}
	require.Equal(t, 429, g.from("203.0.113.1").status, "who is drained is remembered")
	require.Equal(t, 200, g.from("203.0.113.2").status, "who is new is served")
	require.LessOrEqual(t, g.metric(`caddy_rate_limit_keys{store="local"}`), 10_000.0)
}

func TestK11MadeUpKeys(t *testing.T) {
	t.Parallel()
	g := startGateway(t, byIP("rate_limit {\nrule known a 1/1000s burst 9\nrule * a 1/1000s burst 7\nrule ~guest a 1/1000s burst 5\n}",
		"rate_limit a {\nguest ip\nunknown guest\n}"))
	passed := 0
	for i := range 100 {
		if g.from("203.0.113.1", fmt.Sprintf("made-up-%d", i)).status == 200 {
			passed++
		}
	}
	require.Equal(t, 5, passed)
	require.Equal(t, 8, g.from("203.0.113.1", "known").remaining())
	for _, name := range []string{"*", "~guest"} {
		require.Equal(t, 429, g.from("203.0.113.1", name).status, "%s matches no row", name)
	}
	down := startGateway(t, site("rate_limit {\nrules "+servertest.PostgresURL(servertest.FreeAddr(t), "x")+"\ndefault 1/s burst 5\n}", answers("rate_limit a {\nunknown deny\n}")))
	require.Equal(t, 200, down.get("/", "anyone").status, "while rules are not known, nobody is unknown")

	deny := startGateway(t, site("rate_limit {\nrule known a 1/s\ndefault 1/s\n}", answers("rate_limit a {\nunknown deny\n}")))
	require.Equal(t, 401, deny.get("/", "made-up").status)
	require.Equal(t, 200, deny.get("/", "known").status)
}

// TestHashed keeps API keys out of Redis and of rules.
func TestHashed(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	sum := sha256.Sum256([]byte("shop-a"))
	hashed := hex.EncodeToString(sum[:])
	g := startGateway(t, site("rate_limit {\nrule "+hashed+" a 1/1000s burst 9\ndefault 1/1000s burst 2\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}",
		answers("rate_limit a {\ntenant {header.X-Api-Key} hashed\n}")))
	require.Equal(t, 8, g.get("/", "shop-a").remaining())
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
		g := startGateway(t, site(redis, directive))
		require.Equal(t, warns, strings.Contains(g.log(), warning), directive)
	}
	require.NotContains(t, startGateway(t, site("", "rate_limit a {\nlimit 1/s\n}")).log(), warning, "alone, nobody shares anything")
}

// TestTenantTemplates joins several values so that no two lists make one name,
// and takes a text without any value for no tenant.
func TestTenantTemplates(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", "rate_limit a {\ntenant {header.A}:{header.B}\n"+slow(9)+"\n}\nrespond {http.rate_limit.tenant}"))
	ask := func(a, b string) reply {
		return g.send(http.MethodGet, "/", http.Header{"A": {a}, "B": {b}})
	}
	require.Equal(t, 401, g.get("/", "").status)
	require.Equal(t, 401, ask(" ", "").status)
	require.Equal(t, "x:y", ask("x", "y").body)
	names := map[string]bool{}
	for _, pair := range [][2]string{{"x:y", "z"}, {"x", "y:z"}, {"x%3Ay", "z"}, {"x", ""}, {"", "x"}} {
		got := ask(pair[0], pair[1])
		require.Equal(t, 8, got.remaining(), pair)
		require.False(t, names[got.body], pair)
		names[got.body] = true
	}
}
