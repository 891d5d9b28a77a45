package cases_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'create-order', 3, 0.001)`)
	g := gateway.Start(t, gateway.Site(`rate_limit {
		redis `+redis.URL()+` {
			timeout 5s
		}
		rules `+postgres.URL(database)+`
		default 10/s
		guest_secret 0123456789abcdef
	}`, orders))
	gateway.Eventually(t, 5*time.Second, "the rules are known", func() bool { return g.Metric("caddy_rate_limit_rules") == 1 })
	g.Passes(5, "shop-a")
	about := []string{"--tenant", "shop-a", "--route", "create-order"}
	for _, test := range []struct {
		command string
		args    []string
		want    []string
	}{
		{"status", nil, []string{"decides", "redis: breaker closed", "1 rules, 0 rows rejected"}},
		{"rules", []string{"--tenant", "shop-a"}, []string{"shop-a  create-order  postgres  1/1000s burst 3", "1 of 1 rules"}},
		{"explain", about, []string{"refused (429) by ", "rl:{shop-a}:create-order", ">  postgres  shop-a", "0 of 3 left"}},
		{"top", []string{"--limit", "5"}, []string{"2        0               shop-a  create-order"}},
		{"reset", about, []string{"shop-a     create-order  yes   reset"}},
		{"refresh", nil, []string{"1 rules in force, 0 rows rejected", "nothing has changed"}},
	} {
		args := append([]string{"rate-limit", test.command, "--address", g.Admin}, test.args...)
		out, errs, code := g.Caddy(args...)
		require.Zero(t, code, errs)
		for _, want := range test.want {
			require.Contains(t, strings.ReplaceAll(out, redis.Addr+"/0", "redis"), want, test.command)
		}
		out, errs, code = g.Caddy(append(args, "--json")...)
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), new(object)), "%s: %s", test.command, out)
	}

	writeFile(t, g.Dir+"/other.json", `{"admin":{"listen":"`+g.Admin+`"}}`)
	out, errs, code := g.Caddy("rate-limit", "status", "--config", g.Dir+"/other.json")
	require.Zero(t, code, errs)
	require.Contains(t, out, "decides")
	_, errs, code = g.Caddy("rate-limit", "explain", "--address", g.Admin, "--tenant", "a", "--route", "b")
	require.NotZero(t, code)
	require.Contains(t, errs, `no handler has the route \"b\": allowed are create-order`)
	_, errs, code = g.Caddy("rate-limit", "status", "--address", servertest.FreeAddr(t))
	require.NotZero(t, code)
	require.Contains(t, errs, "no Caddy answers at the admin address")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, errs, code = g.Caddy("rate-limit", "status", "--address", strings.TrimPrefix(other.URL, "http://"))
	require.NotZero(t, code)
	require.Contains(t, errs, "does not know this command")
	_, errs, code = g.Caddy("rate-limit", "explain", "shop-a")
	require.NotZero(t, code)
	require.Contains(t, errs, `"shop-a" is no flag`)
	for _, words := range [][]string{{"rate-limit", "restet"}, {"rate-limit", "regions", "rebalanc"}} {
		_, errs, code = g.Caddy(words...)
		require.NotZero(t, code, "a word that is misspelt is refused")
		require.Contains(t, errs, "unknown command")
	}
	out, errs, code = g.Caddy("rate-limit")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Available Commands")
	redis.Kill(t)
	gateway.Eventually(t, 10*time.Second, "the fallback decides", func() bool {
		g.Get("/", "shop-a")
		return at(t, g.Asked("GET", "/rate_limit/status"), "source") == "local"
	})
	_, errs, code = g.Caddy(append([]string{"rate-limit", "reset", "--address", g.Admin}, about...)...)
	require.NotZero(t, code)
	require.Contains(t, errs, "Redis could not be asked")
}

// TestCommandsOverAUnixSocket reach an admin API that has no port.
func TestCommandsOverAUnixSocket(t *testing.T) {
	t.Parallel()
	g := gateway.New(t)
	g.Admin = "unix/" + g.Dir + "/admin.sock"
	g.Start(gateway.Site("", "rate_limit a {\n"+slow(5)+"\n}\nrespond ok"))
	var out, errs string
	gateway.Eventually(t, 10*time.Second, "the config runs, which serves a moment before", func() bool {
		var code int
		out, errs, code = g.Caddy("rate-limit", "explain", "--address", g.Admin, "--tenant", "a b/c", "--route", "a")
		return code == 0
	})
	t.Log(errs)
	require.Contains(t, out, "granted (200) by local, then 4 left")
}
