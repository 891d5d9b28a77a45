package cases_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// TestStructuredHeaders tells of every bucket in RateLimit and RateLimit-Policy.
func TestStructuredHeaders(t *testing.T) {
	t.Parallel()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", "upstream")
		w.Header().Set("RateLimit-Policy", "upstream")
	})
	for word, legacy := range map[string]bool{"ietf": false, "both": true} {
		g := gateway.Start(t, gateway.Site("rate_limit {\nheaders "+word+"\n}", `rate_limit create-order total {
			limit 100/s burst 200 create-order
			limit 1/1000s burst 2 total
		}
		reverse_proxy `+to))
		first := g.Get("/", "t1")
		require.Equal(t, []string{`"create-order";q=200;w=2, "total";q=2;w=2000`}, first.Header.Values("RateLimit-Policy"))
		require.Equal(t, []string{`"create-order";r=199;t=1, "total";r=1;t=1000`}, first.Header.Values("RateLimit"))
		require.Equal(t, legacy, first.Field("X-RateLimit-Limit") == 2)
		g.Get("/", "t1")
		refused := g.Get("/", "t1")
		require.Equal(t, 429, refused.Status)
		require.Regexp(t, `^"create-order";r=(19\d;t=1|200), "total";r=0;t=1000$`, refused.Header.Get("RateLimit"))
		require.Equal(t, 1000, refused.Field("Retry-After"))
	}
}

func TestResetEpoch(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("rate_limit {\nreset epoch\n}", "rate_limit a {\nlimit 1/1000s burst 2\n}\nrespond ok"))
	reset := g.Get("/", "t1").Field("X-RateLimit-Reset")
	require.InDelta(t, time.Now().Add(1000*time.Second).Unix(), reset, 3)
}

// TestProblemDocument gives a client that asks for it the document that the draft
// defines, unless handle_errors has a page of its own.
func TestProblemDocument(t *testing.T) {
	t.Parallel()
	directive := "rate_limit orders total {\nlimit 1/1000s burst 1\n}\nrespond ok"
	asks := http.Header{"X-Api-Key": {"t1"}, "Accept": {"text/html, application/problem+json;q=0.5"}}
	plain := gateway.Start(t, gateway.Site("", directive))
	require.Equal(t, 200, plain.Send(http.MethodGet, "/", asks).Status)
	refused := plain.Send(http.MethodGet, "/", asks)
	require.Equal(t, 429, refused.Status)
	require.Equal(t, "application/problem+json", refused.Header.Get("Content-Type"))
	require.Equal(t, 0, refused.Remaining())
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(refused.Body), &document))
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", document["type"])
	require.Equal(t, []any{"orders", "total"}, document["violated-policies"])
	require.EqualValues(t, 429, document["status"])
	require.Empty(t, plain.Get("/", "t1").Body, "nobody asked")
	head := plain.Send(http.MethodHead, "/", asks)
	require.Equal(t, []any{429, fmt.Sprint(len(refused.Body))}, []any{head.Status, head.Header.Get("Content-Length")})

	page := gateway.Start(t, gateway.Site("", directive+"\nhandle_errors {\nrespond page\n}"))
	page.Get("/", "t1")
	require.Equal(t, "page", page.Send(http.MethodGet, "/", asks).Body)
}

// TestProblemOnTheWire sees the document as a client does, without a body where
// HEAD was asked, and the status in the access log.
func TestProblemOnTheWire(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", `log {
		output file DIR/access.log
	}
	header X-Before kept
	rate_limit a b {
		tenant static
		limit 1/1000s
	}
	respond ok`))
	asked := http.Header{"Accept": {"application/problem+json"}}
	require.Equal(t, 200, g.Send(http.MethodGet, "/", asked).Status)
	got := g.Send(http.MethodGet, "/", asked)
	require.Equal(t, 429, got.Status)
	require.Equal(t, "application/problem+json", got.Header.Get("Content-Type"))
	require.InDelta(t, 1000, got.Field("Retry-After"), 30)
	require.Equal(t, "kept", got.Header.Get("X-Before"))
	require.Contains(t, got.Body, `"violated-policies":["a","b"]`)

	head := g.Send(http.MethodHead, "/", asked)
	require.Equal(t, 429, head.Status)
	require.Empty(t, head.Body)
	require.Equal(t, got.Header.Get("Content-Length"), head.Header.Get("Content-Length"))
	require.Equal(t, "application/problem+json", head.Header.Get("Content-Type"))

	plain := g.Send(http.MethodGet, "/", http.Header{"Accept": {"*/*"}})
	require.Equal(t, 429, plain.Status)
	require.Empty(t, plain.Body)

	gateway.Eventually(t, 10*time.Second, "a line in the access log for each", func() bool { return len(accessLog(t, g)) == 4 })
	require.Equal(t, []accessLine{{200, 2}, {429, len(got.Body)}, {429, 0}, {429, 0}}, accessLog(t, g))
}

// accessLine is what the access log says about one request.
type accessLine struct {
	Status int `json:"status"`
	Size   int `json:"size"`
}

func accessLog(t *testing.T, g *gateway.Process) (lines []accessLine) {
	t.Helper()
	file, err := os.Open(filepath.Join(g.Dir, "access.log"))
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
	example, err := os.ReadFile("../examples/cors/Caddyfile")
	require.NoError(t, err)
	g := gateway.Start(t, "{\nadmin ADMIN\nauto_https off\npersist_config off\n}\n"+
		strings.NewReplacer(":8080", "http://ADDR", "10/s burst 20", "1/1000s burst 2").Replace(string(example)))
	page := http.Header{"Origin": {"https://app.example.com"}, "X-Api-Key": {"shop-a"}}
	preflight := http.Header{
		"Origin": {"https://app.example.com"}, "Access-Control-Request-Method": {"GET"}, "Access-Control-Request-Headers": {"x-api-key"},
	}
	for _, want := range []int{200, 200, 429} {
		require.Equal(t, 204, g.Send(http.MethodOptions, "/", preflight).Status)
		got := g.Send(http.MethodGet, "/", page)
		require.Equal(t, want, got.Status)
		readable(t, got)
		if want == 429 {
			require.NotEmpty(t, got.Header.Get("Retry-After"))
		}
	}
	allowed := g.Send(http.MethodOptions, "/", preflight).Header
	require.Contains(t, allowed.Get("Access-Control-Allow-Headers"), "X-Api-Key")
	require.Contains(t, allowed.Get("Access-Control-Allow-Methods"), "GET")

	page.Del("X-Api-Key")
	unauthorized := g.Send(http.MethodGet, "/", page)
	require.Equal(t, 401, unauthorized.Status)
	readable(t, unauthorized)
	plain := g.Send(http.MethodOptions, "/", page)
	require.Equal(t, 401, plain.Status, "OPTIONS is a preflight only with its headers")
}

// readable sees that a script of the other origin may read the answer and each
// of our fields.
func readable(t *testing.T, got gateway.Reply) {
	t.Helper()
	require.Equal(t, []string{"https://app.example.com"}, got.Header.Values("Access-Control-Allow-Origin"))
	exposed := strings.Split(got.Header.Get("Access-Control-Expose-Headers"), ", ")
	require.ElementsMatch(t, []string{
		"RateLimit", "RateLimit-Policy", "Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	}, exposed)
}
