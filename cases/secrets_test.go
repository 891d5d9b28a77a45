package cases_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// TestK14GatewayLog runs the gateway of the README with an access log, and an
// upstream that is not there, which Caddy logs with the request.
func TestK14GatewayLog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../examples/gateway/Caddyfile")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), string(text), "the README shows the example")
	global, body, found := strings.Cut(strings.TrimPrefix(string(text), "{\n"), "\n}\n")
	require.True(t, found)
	snippet, sites, found := strings.Cut(body, ":8080 {\n")
	require.True(t, found)
	caddyfile := "{\nadmin ADMIN\nauto_https off\npersist_config off\nstorage file_system DIR/storage\n" + global + "\n}\n" +
		snippet + "http://ADDR {\nlog\n" + strings.Replace(sites, "127.0.0.1:9000", "127.0.0.1:1", 1)
	redis, postgres, database := stores(t)
	g := gateway.Start(t, caddyfile, "REDIS_URL="+redis.URL(), "RULES_URL="+postgres.URL(database), "GUEST_SECRET=0123456789abcdef")
	const secret = "sk-live-key-of-a-client"
	for range 30 {
		g.Get("/", secret)
	}
	gateway.Eventually(t, 10*time.Second, "access and errors are logged", func() bool {
		return strings.Contains(g.Log(), "http.log.access") && strings.Contains(g.Log(), "http.log.error")
	})
	require.NotContains(t, g.Log(), secret)
}

// TestK14Commands asks about a tenant that no log and no command line has.
func TestK14Commands(t *testing.T) {
	t.Parallel()
	const secret = "sk-live-key-of-a-client"
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nrespond ok"))
	for _, command := range []string{"explain", "reset", "rules"} {
		cmd := g.Command("rate-limit", command, "--address", g.Admin, "--route", "a", "--tenant", "-")
		cmd.Stdin = strings.NewReader(secret + "\n")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		if command == "explain" {
			require.Contains(t, string(out), secret)
		}
		cmd = g.Command("rate-limit", command, "--address", g.Admin, "--route", "a", "--tenant", secret)
		out, err = cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	empty := g.Command("rate-limit", "reset", "--address", g.Admin, "--route", "a", "--tenant", "-")
	out, err := empty.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "standard input has no name")
	require.Contains(t, g.Log(), "/rate_limit/bucket", "admin calls are logged")
	require.NotContains(t, g.Log(), secret)

	status, body := g.Post("/rate_limit/explain", "application/x-www-form-urlencoded", "tenant="+strings.Repeat("x", 70_000))
	require.Equal(t, 400, status, body)
	status, body = g.Post("/rate_limit/explain?tenant=a", "application/x-www-form-urlencoded", "tenant=b&route=a")
	require.Equal(t, 400, status, body)
	require.Contains(t, body, "2 times")
}

// TestH13JSONOnFailure prints the body of the admin API also where it tells of a failure.
func TestH13JSONOnFailure(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nrespond ok"))
	out, errs, code := g.Caddy("rate-limit", "explain", "--address", g.Admin, "--route", "nowhere", "--tenant", "t", "--json")
	require.NotZero(t, code)
	require.Regexp(t, `^\{"error":".*nowhere.*"\}\s*$`, out)
	require.Contains(t, errs, "nowhere")
}
