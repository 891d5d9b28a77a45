package ratelimit

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
)

// BenchmarkServer is a whole request of one of 100,000 tenants through Caddy and
// net/http, all but the sockets. What we add is the difference to a handler that
// does nothing; of that, what "three fields" adds is what net/http takes for
// sending as many fields as we set.
func BenchmarkServer(b *testing.B) {
	registerPassing()
	for _, c := range []struct{ name, handler string }{
		{"nothing", `{"handler":"bench_passing"}`},
		{"three fields", `{"handler":"bench_passing","fields":{"X-Ratelimit-Limit":["600000"],"X-Ratelimit-Remaining":["599999"],"X-Ratelimit-Reset":["1"]}}`},
		{"ours", `{"handler":"rate_limit","limits":[{"capacity":600000,"refill_per_second":1000}]}`},
		{"ours, a charge with nothing to settle", `{"handler":"rate_limit","routes":["taken"],"charge":[{"status":["2xx"]}],"limits":[{"capacity":600000,"refill_per_second":1000}]}`},
		{"ours, a charge that gives back", `{"handler":"rate_limit","routes":["given"],"charge":[{"status":["401"]}],"limits":[{"capacity":600000,"refill_per_second":1000}]}`},
		{"ours, a charge that gives back, and a ban", `{"handler":"rate_limit","routes":["banned"],"charge":[{"status":["401"]}],"ban":{"for":"1h"},"limits":[{"capacity":600000,"refill_per_second":1000}]}`},
		{"ours, headers off", `{"handler":"rate_limit","headers":"off","limits":[{"capacity":600000,"refill_per_second":1000}]}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			server, requests := benchServer(b, c.handler), benchRequests(100_000)
			b.ReportAllocs()
			serveAll(server, requests, len(requests)) // every tenant has its bucket
			b.ResetTimer()
			serveAll(server, requests, b.N)
		})
	}
}

// benchServer is what Caddy makes of a server with one handler before its answer.
func benchServer(b *testing.B, handler string) *http.Server {
	b.Helper()
	quiet := &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{Level: "ERROR"}}}}
	ctx, err := provisionContext(&caddy.Config{Logging: quiet, AppsRaw: caddy.ModuleMap{"http": json.RawMessage(
		`{"servers":{"s":{"listen":["127.0.0.1:0"],"automatic_https":{"disable":true},
		"routes":[{"handle":[` + handler + `,{"handler":"static_response","body":"ok"}]}]}}}`)}})
	require.NoError(b, err)
	ctx, cancel := caddy.NewContext(ctx)
	b.Cleanup(cancel)
	app, err := ctx.App("http")
	require.NoError(b, err)
	return &http.Server{Handler: app.(*caddyhttp.App).Servers["s"], ReadHeaderTimeout: time.Minute}
}

func benchRequests(n int) [][]byte {
	requests := make([][]byte, n)
	for i := range requests {
		requests[i] = fmt.Appendf(nil, "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nX-Api-Key: tenant-%d\r\n\r\n", i)
	}
	return requests
}

// serveAll lets a server answer n requests of one connection.
func serveAll(server *http.Server, requests [][]byte, n int) {
	conn := &endless{requests: requests, left: n, closed: make(chan struct{})}
	_ = server.Serve(&single{conn: conn})
}

// single is a listener with one connection, and ends when that does.
type single struct {
	conn  *endless
	given bool
}

func (l *single) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.conn, nil
	}
	<-l.conn.closed
	return nil, net.ErrClosed
}
func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return benchAddr }

// endless is a connection that hands out one request after another, in a mixed
// order, and keeps nothing of what is answered.
type endless struct {
	requests [][]byte
	rest     []byte
	at, left int
	once     sync.Once
	closed   chan struct{}
}

func (c *endless) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.left == 0 {
			return 0, io.EOF
		}
		c.left--
		c.at = (c.at + 7919) % len(c.requests)
		c.rest = c.requests[c.at]
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *endless) Write(p []byte) (int, error) { return len(p), nil }

func (c *endless) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

var benchAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}

func (c *endless) LocalAddr() net.Addr              { return benchAddr }
func (c *endless) RemoteAddr() net.Addr             { return benchAddr }
func (c *endless) SetDeadline(time.Time) error      { return nil }
func (c *endless) SetReadDeadline(time.Time) error  { return nil }
func (c *endless) SetWriteDeadline(time.Time) error { return nil }

// passing is a handler that sets constant fields, if any, and does nothing else.
type passing struct {
	Fields http.Header `json:"fields,omitempty"`
}

var registerPassing = sync.OnceFunc(func() { caddy.RegisterModule(new(passing)) })

func (*passing) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bench_passing", New: func() caddy.Module { return new(passing) }}
}

func (p *passing) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	maps.Copy(w.Header(), p.Fields)
	return next.ServeHTTP(w, r)
}
