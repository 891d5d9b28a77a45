package ratelimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
)

// caddy runs a command of the gateway's Caddy.
func (g *gateway) caddy(args ...string) (stdout, stderr string, code int) {
	g.t.Helper()
	cmd := g.command(args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestCommands(t *testing.T) {
	t.Parallel()
	redis, postgres, database := stores(t)
	postgres.ExecIn(t, database, `INSERT INTO rate_limit_rule (tenant_id, route_id, capacity, refill_per_second) VALUES ('shop-a', 'create-order', 3, 0.001)`)
	g := startGateway(t, site(`rate_limit {
		redis `+redis.URL()+` {
			timeout 5s
		}
		rules `+postgres.URL(database)+`
		default 10/s
		guest_secret 0123456789abcdef
	}`, orders))
	eventually(t, 5*time.Second, "the rules are known", func() bool { return g.metric("caddy_rate_limit_rules") == 1 })
	g.passes(5, "shop-a")
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
		args := append([]string{"rate-limit", test.command, "--address", g.admin}, test.args...)
		out, errs, code := g.caddy(args...)
		require.Zero(t, code, errs)
		for _, want := range test.want {
			require.Contains(t, strings.ReplaceAll(out, redis.Addr+"/0", "redis"), want, test.command)
		}
		out, errs, code = g.caddy(append(args, "--json")...)
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), new(object)), "%s: %s", test.command, out)
	}

	writeFile(t, g.dir+"/other.json", `{"admin":{"listen":"`+g.admin+`"}}`)
	out, errs, code := g.caddy("rate-limit", "status", "--config", g.dir+"/other.json")
	require.Zero(t, code, errs)
	require.Contains(t, out, "decides")
	_, errs, code = g.caddy("rate-limit", "explain", "--address", g.admin, "--tenant", "a", "--route", "b")
	require.NotZero(t, code)
	require.Contains(t, errs, `no handler has the route \"b\": allowed are create-order`)
	_, errs, code = g.caddy("rate-limit", "status", "--address", servertest.FreeAddr(t))
	require.NotZero(t, code)
	require.Contains(t, errs, "no Caddy answers at the admin address")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, errs, code = g.caddy("rate-limit", "status", "--address", strings.TrimPrefix(other.URL, "http://"))
	require.NotZero(t, code)
	require.Contains(t, errs, "does not know this command")
	_, errs, code = g.caddy("rate-limit", "explain", "shop-a")
	require.NotZero(t, code)
	require.Contains(t, errs, `"shop-a" is no flag`)
	for _, words := range [][]string{{"rate-limit", "restet"}, {"rate-limit", "regions", "rebalanc"}} {
		_, errs, code = g.caddy(words...)
		require.NotZero(t, code, "a word that is misspelt is refused")
		require.Contains(t, errs, "unknown command")
	}
	out, errs, code = g.caddy("rate-limit")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Available Commands")
	redis.Kill(t)
	eventually(t, 10*time.Second, "the fallback decides", func() bool {
		g.get("/", "shop-a")
		return at(t, g.asked("GET", "/rate_limit/status"), "source") == "local"
	})
	_, errs, code = g.caddy(append([]string{"rate-limit", "reset", "--address", g.admin}, about...)...)
	require.NotZero(t, code)
	require.Contains(t, errs, "Redis could not be asked")
}

// TestCommandsOverAUnixSocket reach an admin API that has no port.
func TestCommandsOverAUnixSocket(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.admin = "unix/" + g.dir + "/admin.sock"
	g.start(site("", "rate_limit a {\n"+slow(5)+"\n}\nrespond ok"))
	var out, errs string
	eventually(t, 10*time.Second, "the config runs, which serves a moment before", func() bool {
		var code int
		out, errs, code = g.caddy("rate-limit", "explain", "--address", g.admin, "--tenant", "a b/c", "--route", "a")
		return code == 0
	})
	t.Log(errs)
	require.Contains(t, out, "granted (200) by local, then 4 left")
}
