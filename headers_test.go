package ratelimit_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestProblemOnTheWire sees the document as a client does, without a body where
// HEAD was asked, and the status in the access log.
func TestProblemOnTheWire(t *testing.T) {
	t.Parallel()
	g := startGateway(t, site("", `log {
		output file DIR/access.log
	}
	header X-Before kept
	test_refuse a b`))
	asked := http.Header{"Accept": {"application/problem+json"}}
	got := g.send(http.MethodGet, "/", asked)
	require.Equal(t, 429, got.status)
	require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
	require.Equal(t, "7", got.header.Get("Retry-After"))
	require.Equal(t, "kept", got.header.Get("X-Before"))
	require.Contains(t, got.body, `"violated-policies":["a","b"]`)

	head := g.send(http.MethodHead, "/", asked)
	require.Equal(t, 429, head.status)
	require.Empty(t, head.body)
	require.Equal(t, got.header.Get("Content-Length"), head.header.Get("Content-Length"))
	require.Equal(t, "application/problem+json", head.header.Get("Content-Type"))

	plain := g.send(http.MethodGet, "/", http.Header{"Accept": {"*/*"}})
	require.Equal(t, 429, plain.status)
	require.Empty(t, plain.body)

	eventually(t, 10*time.Second, "three lines in the access log", func() bool { return len(accessLog(t, g)) == 3 })
	for i, size := range []int{len(got.body), 0, 0} {
		require.Equal(t, accessLine{429, size}, accessLog(t, g)[i], i)
	}
}

// accessLine is what the access log says about one request.
type accessLine struct {
	Status int `json:"status"`
	Size   int `json:"size"`
}

func accessLog(t *testing.T, g *gateway) (lines []accessLine) {
	t.Helper()
	file, err := os.Open(filepath.Join(g.dir, "access.log"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var line accessLine
		require.NoError(t, json.Unmarshal(scanner.Bytes(), &line))
		lines = append(lines, line)
	}
	return lines
}

// TestH5CORSExample runs examples/cors: a page of another origin may read each of
// our fields on every answer, and its preflight costs nothing.
func TestH5CORSExample(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("examples/cors/Caddyfile")
	require.NoError(t, err)
	g := startGateway(t, "{\nadmin ADMIN\nauto_https off\npersist_config off\n}\n"+
		strings.NewReplacer(":8080", "http://ADDR", "10/s burst 20", "1/1000s burst 2").Replace(string(example)))
	page := http.Header{"Origin": {"https://app.example.com"}, "X-Api-Key": {"shop-a"}}
	preflight := http.Header{
		"Origin": {"https://app.example.com"}, "Access-Control-Request-Method": {"GET"}, "Access-Control-Request-Headers": {"x-api-key"},
	}
	for _, want := range []int{200, 200, 429} {
		require.Equal(t, 204, g.send(http.MethodOptions, "/", preflight).status)
		got := g.send(http.MethodGet, "/", page)
		require.Equal(t, want, got.status)
		readable(t, got)
		if want == 429 {
			require.NotEmpty(t, got.header.Get("Retry-After"))
		}
	}
	allowed := g.send(http.MethodOptions, "/", preflight).header
	require.Contains(t, allowed.Get("Access-Control-Allow-Headers"), "X-Api-Key")
	require.Contains(t, allowed.Get("Access-Control-Allow-Methods"), "GET")

	page.Del("X-Api-Key")
	unauthorized := g.send(http.MethodGet, "/", page)
	require.Equal(t, 401, unauthorized.status)
	readable(t, unauthorized)
	plain := g.send(http.MethodOptions, "/", page)
	require.Equal(t, 401, plain.status, "OPTIONS is a preflight only with its headers")
}

// readable sees that a script of the other origin may read the answer and each
// of our fields.
func readable(t *testing.T, got reply) {
	t.Helper()
	require.Equal(t, []string{"https://app.example.com"}, got.header.Values("Access-Control-Allow-Origin"))
	exposed := strings.Split(got.header.Get("Access-Control-Expose-Headers"), ", ")
	require.ElementsMatch(t, []string{
		"RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	}, exposed)
}
