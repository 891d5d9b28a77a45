package cases_test

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// described fails unless the page of first mistakes shows what was printed.
func described(t *testing.T, printed string, words ...string) {
	t.Helper()
	page, err := os.ReadFile("../docs/troubleshooting.md")
	require.NoError(t, err)
	for _, word := range words {
		require.Contains(t, printed, word)
		require.Contains(t, string(page), word, "docs/troubleshooting.md shows what is printed")
	}
}

// TestFirstMistakesAtLoad makes the mistakes that end a start, and finds each on the
// page.
func TestFirstMistakesAtLoad(t *testing.T) {
	t.Parallel()
	for global, words := range map[string]string{
		"redis 127.0.0.1:6379":  "redis url: it must begin with redis://, rediss:// or unix://",
		"redis {env.REDIS_URL}": "a placeholder in it is unknown or has no value: {env.REDIS_URL}",
	} {
		printed := gateway.New(t).Validates(gateway.Site("rate_limit {\n"+global+"\n}", "rate_limit a {\nlimit 1/s\n}"))
		described(t, printed, words)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // as another program does: two Caddys could share the port
	require.NoError(t, err)
	defer listener.Close()
	g := gateway.New(t)
	file := g.Dir + "/taken"
	writeFile(t, file, "{\nadmin "+listener.Addr().String()+"\npersist_config off\n}\n")
	_, printed, code := g.Caddy("run", "--adapter", "caddyfile", "--config", file)
	require.NotZero(t, code)
	described(t, printed, "starting caddy administration endpoint", "address already in use")
}

// TestFirstMistakesAtRunTime makes those that a gateway serves through.
func TestFirstMistakesAtRunTime(t *testing.T) {
	t.Parallel()
	postgres := servertest.Postgres(t)
	empty := postgres.CreateDatabase(t)
	logs := func(global string, words ...string) {
		t.Helper()
		g := gateway.Start(t, gateway.Site("rate_limit {\n"+global+"\n}", gateway.Answers("rate_limit create-order {\nlimit 5/s\n}")))
		require.Equal(t, http.StatusOK, g.Get("/", "shop-a").Status, "it serves all the same")
		require.Equal(t, http.StatusUnauthorized, g.Get("/", "").Status)
		gateway.Eventually(t, 10*time.Second, words[0], func() bool { return strings.Contains(g.Log(), words[0]) })
		described(t, g.Log(), words...)
	}
	logs("redis redis://127.0.0.1:1/0", "redis cannot be reached", `"detail":"connection"`)
	logs("rule shop-a create-ordr 5/s", "a static rule names a route that no rate_limit has", "did_you_mean")
	logs("rules postgres://gateway@127.0.0.1:1/gateway", "loading rules failed", `"error":"connection refused"`)
	logs("rules "+postgres.URL(empty), "loading rules failed", "the table rate_limit_rule does not exist")
}
