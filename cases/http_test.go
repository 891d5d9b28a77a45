package cases_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// slow is a limit that does not refill while a test runs.
func slow(capacity int) string {
	return fmt.Sprintf("limit 1/1000s burst %d", capacity)
}

func TestAlone(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\n"+slow(2)+"\n}")))
	first, second, third := g.Get("/", "shop-a"), g.Get("/", "shop-a"), g.Get("/", "shop-a")
	require.Equal(t, []int{200, 200, 429}, []int{first.Status, second.Status, third.Status})
	require.Equal(t, []int{1, 0, 0}, []int{first.Remaining(), second.Remaining(), third.Remaining()})
	require.Equal(t, 2, first.Field("X-RateLimit-Limit"))
	require.Equal(t, 1000, third.Field("Retry-After"))
	require.Equal(t, 2000, third.Field("X-RateLimit-Reset"))
	require.Equal(t, "local", first.Source())
	require.Equal(t, "local", third.Source())
	require.Equal(t, 200, g.Get("/", "shop-b").Status, "another tenant has a bucket of its own")
}

func TestNoTenant(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", `
		route /deny { 
			rate_limit a {
				limit 1/1000s
			}
			respond ok
		}
		route /allow {
			rate_limit a {
				limit 1/1000s
				guest allow
			}
			respond ok
		}`))
	denied := g.Get("/deny", "")
	require.Equal(t, 401, denied.Status)
	require.NotEmpty(t, denied.Header.Get("WWW-Authenticate"))
	require.Equal(t, -1, denied.Remaining())
	require.Equal(t, 401, g.Send(http.MethodGet, "/deny", http.Header{"X-Api-Key": {"  "}}).Status, "a blank header names nobody")
	for range 3 {
		allowed := g.Get("/allow", "")
		require.Equal(t, 200, allowed.Status)
		require.Equal(t, -1, allowed.Remaining(), "no bucket decided")
	}
}

func TestK8Spelling(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\n"+slow(6)+"\n}")))
	for i, path := range []string{"//a", "/A", "/a/", "/./a", "/%61", "/a?y"} {
		require.Equal(t, 5-i, g.Get(path, "t1").Remaining(), path)
	}
	require.Equal(t, 429, g.Get("/a", "t1").Status)
}

func TestK9HeaderTwice(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
	require.Equal(t, 400, g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"a", "b"}}).Status)
	require.Equal(t, 400, g.Send(http.MethodGet, "/", http.Header{"X-Api-Key": {"a", "a"}}).Status)
	require.Equal(t, 4, g.Get("/", "a").Remaining(), "nothing was charged before")
}

// TestWildcardNames sees that a client cannot name the rows that are meant for all.
func TestWildcardNames(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site(`rate_limit {
		rule * a 1/1000s burst 3
		default 1/1000s burst 9
	}`, gateway.Answers("rate_limit a")))
	for _, tenant := range []string{"*", "~guest", "x"} {
		require.Equal(t, 2, g.Get("/", tenant).Remaining(), tenant)
	}
}

func TestH1Once(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	directive := "rate_limit a {\n" + slow(2) + "\n}\n"
	config := gateway.Site("rate_limit {\nredis "+redis.URL()+" {\ntimeout 5s\n}\n}",
		"import limited\nrespond ok\nhandle_errors {\nimport limited\nrespond \"page {err.status_code}\"\n}")
	g := gateway.Start(t, strings.Replace(config, "http://ADDR", "(limited) {\n"+directive+"}\nhttp://ADDR", 1))
	stored := redis.Client(t)
	for i, want := range []struct {
		status, remaining int
		tokens, body      string
	}{{200, 1, "1", "ok"}, {200, 0, "0", "ok"}, {429, 0, "0", "page 429"}} {
		got := g.Get("/", "t1")
		require.Equal(t, want.status, got.Status, i)
		require.Equal(t, want.remaining, got.Remaining(), i)
		require.Equal(t, want.body, got.Body, i)
		require.Len(t, got.Header.Values("X-RateLimit-Limit"), 1)
		if want.status == 429 {
			require.InDelta(t, 1000, got.Field("Retry-After"), 20, "a token comes back each 1000 s")
		} else {
			require.Empty(t, got.Header.Values("Retry-After"))
		}
		tokens, err := stored.HGet(t.Context(), "rl:{t1}:a", "tokens").Float64()
		require.NoError(t, err)
		require.Equal(t, want.tokens, fmt.Sprintf("%.0f", tokens), i)
	}
}

func upstream(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestH2UpstreamHeaders(t *testing.T) {
	t.Parallel()
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			w.Header().Set(name, "7777")
		}
		switch r.URL.Path {
		case "/429":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/early":
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(9)+"\n}\nreverse_proxy "+to))
	for i, path := range []string{"/", "/429", "/early"} {
		got := g.Get(path, "t1")
		require.Equal(t, []string{"9"}, got.Header.Values("X-RateLimit-Limit"), path)
		require.Equal(t, []string{fmt.Sprint(8 - i)}, got.Header.Values("X-RateLimit-Remaining"), path)
		require.Len(t, got.Header.Values("X-RateLimit-Reset"), 1, path)
		if path == "/429" {
			require.Equal(t, 429, got.Status)
			require.Equal(t, []string{"7"}, got.Header.Values("Retry-After"))
		}
	}
}

func TestHeadersOff(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("rate_limit {\nheaders off\n}", "rate_limit a {\n"+slow(1)+"\n}\nrespond ok"))
	require.Equal(t, -1, g.Get("/", "t1").Field("X-RateLimit-Limit"))
	refused := g.Get("/", "t1")
	require.Equal(t, 429, refused.Status)
	require.Equal(t, -1, refused.Remaining())
	require.Equal(t, 1000, refused.Field("Retry-After"))
}

// TestTwoDirectives holds a request to two buckets, one after the other: the
// header tells of the one that is nearest to empty, or of the violated one.
func TestTwoDirectives(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", `route {
		rate_limit wide {
			limit 1/1000s burst 9
		}
		rate_limit narrow {
			limit 1/1000s burst 2
		}
		respond "{http.rate_limit.route}"
	}`))
	first := g.Get("/", "t1")
	require.Equal(t, []int{2, 1}, []int{first.Field("X-RateLimit-Limit"), first.Remaining()})
	require.Equal(t, "narrow", first.Body)
	require.Equal(t, 200, g.Get("/", "t1").Status)
	refused := g.Get("/", "t1")
	require.Equal(t, 429, refused.Status)
	require.Equal(t, []int{2, 0}, []int{refused.Field("X-RateLimit-Limit"), refused.Remaining()})
}

func TestH4WebSocket(t *testing.T) {
	t.Parallel()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	})
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nreverse_proxy "+to))
	handshake := func() (net.Conn, *bufio.Reader, *http.Response) {
		conn, err := net.Dial("tcp", g.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nX-Api-Key: t1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", g.Addr)
		reader := bufio.NewReader(conn)
		res, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		return conn, reader, res
	}
	for i := range 2 {
		conn, reader, res := handshake()
		require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
		require.Equal(t, fmt.Sprint(1-i), res.Header.Get("X-RateLimit-Remaining"))
		for frame := range 20 {
			fmt.Fprintf(conn, "frame %d\n", frame)
			line, err := reader.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("frame %d\n", frame), line)
		}
	}
	_, _, res := handshake()
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
}

func TestH4ServerSentEvents(t *testing.T) {
	t.Parallel()
	more := make(chan struct{})
	end := sync.OnceFunc(func() { close(more) })
	defer end()
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-more
		fmt.Fprint(w, "data: 2\n\n")
	})
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nreverse_proxy "+to))
	req, err := http.NewRequest(http.MethodGet, "http://"+g.Addr+"/", http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", "t1")
	res, err := gateway.Client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	line, err := events.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "data: 1\n", line, "the first event comes before the stream ends")
	require.Equal(t, "1", res.Header.Get("X-RateLimit-Remaining"))
	end()
	rest, err := io.ReadAll(events)
	require.NoError(t, err)
	require.Equal(t, "\ndata: 2\n\n", string(rest))
	require.Equal(t, 0, g.Get("/", "t1").Remaining(), "events cost nothing")
}

func TestH4LargeBody(t *testing.T) {
	t.Parallel()
	file := make([]byte, 10<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(file)
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(file) })
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nreverse_proxy "+to))
	require.Equal(t, sha256.Sum256(file), sha256.Sum256([]byte(g.Get("/", "t1").Body)), "every byte passes")
}

func TestH5CORS(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "header Access-Control-Allow-Origin *\nrate_limit a {\n"+slow(1)+"\n}\nrespond ok\nhandle_errors {\nrespond \"page {err.status_code}\"\n}"))
	require.Equal(t, 200, g.Send(http.MethodHead, "/", http.Header{"X-Api-Key": {"t1"}}).Status, "HEAD counts")
	refused := g.Send(http.MethodHead, "/", http.Header{"X-Api-Key": {"t1"}})
	require.Equal(t, 429, refused.Status)
	require.Equal(t, "*", refused.Header.Get("Access-Control-Allow-Origin"))
	page := g.Get("/", "t1")
	require.Equal(t, []any{429, "page 429", "*"}, []any{page.Status, page.Body, page.Header.Get("Access-Control-Allow-Origin")})

	// A client would hide a body that must not be there.
	conn, err := net.Dial("tcp", g.Addr)
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "HEAD / HTTP/1.1\r\nHost: %s\r\nX-Api-Key: t1\r\nConnection: close\r\n\r\n", g.Addr)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	head, body, found := strings.Cut(string(answer), "\r\n\r\n")
	require.True(t, found, string(answer))
	require.Contains(t, head, "HTTP/1.1 429 ")
	require.Empty(t, body)
}

// TestMatcherWithoutRoute warns where a matcher was meant to be a route, with the
// line that it stands in.
func TestMatcherWithoutRoute(t *testing.T) {
	t.Parallel()
	config := gateway.Site("", "rate_limit /orders {\n"+slow(1)+"\n}\nrespond ok")
	before, _, found := strings.Cut(config, "rate_limit /orders")
	require.True(t, found)
	log := gateway.Start(t, config).Log()
	require.Contains(t, log, "the first argument is a matcher")
	require.Contains(t, log, fmt.Sprintf(`"line":%d`, 1+strings.Count(before, "\n")))
}

// TestO3HeaderNames warns of a header that this Caddy drops, and of no other.
func TestO3HeaderNames(t *testing.T) {
	t.Parallel()
	for header, special := range map[string]bool{"X_Api_Key": true, "X.Api.Key": true, "X-Api-Key": false} {
		g := gateway.Start(t, gateway.Site("", "rate_limit a {\ntenant {http.request.header."+header+"}\n"+slow(1)+"\n}\nrespond ok"))
		dropped := g.Send(http.MethodGet, "/", http.Header{header: {"t1"}}).Status == http.StatusUnauthorized
		require.Equal(t, dropped, strings.Contains(g.Log(), "caddy drops headers with an underscore"), header)
		require.True(t, special || !dropped, header)
	}
}

// TestPlaceholders sees that what a client sends is never expanded again.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", `rate_limit a {
		limit 1/1000s burst 3
	}
	respond "{http.rate_limit.tenant} {http.rate_limit.route} {http.rate_limit.remaining} {http.rate_limit.source}[{http.rate_limit.exceeded.name}]"
	handle_errors {
		respond "{http.rate_limit.exceeded.name} {http.rate_limit.tenant}"
	}`))
	require.Equal(t, "t1 a 2 local[]", g.Get("/", "t1").Body)
	require.Equal(t, "{env.HOME} a 2 local[]", g.Get("/", "{env.HOME}").Body)
	g.Passes(2, "t1")
	require.Equal(t, "a t1", g.Get("/", "t1").Body)
}

// TestRefusalLog sees one line for the first refusal and none for the next ones.
func TestRefusalLog(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(1)+"\n}\nrespond ok"))
	g.Passes(1, "secret-key")
	g.Passes(5, "secret-key")
	gateway.Eventually(t, 10*time.Second, "the refusal is logged", func() bool { return lineWith(g.Log(), `"rate limit exceeded"`) != "" })
	require.Equal(t, 1, strings.Count(g.Log(), `"rate limit exceeded"`))
	require.NotContains(t, g.Log(), "secret-key")
	g.Stop()
	require.Contains(t, g.Log(), `"refused":4`)

	named := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(1)+"\nlog_key\n}\nrespond ok"))
	named.Passes(2, "named-key")
	gateway.Eventually(t, 10*time.Second, "the key is logged", func() bool { return strings.Contains(named.Log(), "named-key") })
}

// TestClientGone sees that a client that left while waiting is charged nowhere.
func TestClientGone(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	proxy := servertest.NewProxy(t, redis.Addr)
	g := gateway.Start(t, gateway.Site("rate_limit {\nredis redis://"+proxy.Addr()+" {\ntimeout 1s\n}\n}", gateway.Answers("rate_limit a {\n"+slow(5)+"\n}")))
	require.Equal(t, "redis", g.Get("/", "t1").Source())
	proxy.Set(t, servertest.Fault{SilentFor: []string{"EVALSHA", "EVAL"}})
	conn, err := net.Dial("tcp", g.Addr)
	require.NoError(t, err)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nX-Api-Key: t1\r\n\r\n", g.Addr)
	time.Sleep(50 * time.Millisecond)
	conn.Close()
	time.Sleep(1200 * time.Millisecond)
	require.Zero(t, g.Metric(`caddy_rate_limit_requests_total{outcome="granted",source="local",zone="a"}`))
	require.Equal(t, 1.0, g.Metric(`caddy_rate_limit_requests_total{outcome="left",source="none",zone="a"}`))
	require.Equal(t, 1.0, g.Metric(`caddy_rate_limit_requests_total{outcome="granted",source="redis",zone="a"}`))
}

// TestFlushKeepsTheHeader sees our header win also where the upstream's is sent
// by a flush.
func TestFlushKeepsTheHeader(t *testing.T) {
	t.Parallel()
	var flushed atomic.Bool
	to := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "1")
		w.(http.Flusher).Flush()
		flushed.Store(true)
	})
	g := gateway.Start(t, gateway.Site("", "rate_limit a {\n"+slow(2)+"\n}\nreverse_proxy "+to+" {\nflush_interval -1\n}"))
	require.Equal(t, []string{"2"}, g.Get("/", "t1").Header.Values("X-RateLimit-Limit"))
	require.True(t, flushed.Load())
}
