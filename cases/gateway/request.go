package gateway

import (
	"io"
	"net/http"
	"strconv"
	"time"
)

// Reply is what a client sees.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	Took   time.Duration
}

func (r Reply) Source() string { return r.Header.Get("X-Source") }

// Field is a number of the header, -1 where it is missing.
func (r Reply) Field(name string) int {
	n, err := strconv.Atoi(r.Header.Get(name))
	if err != nil {
		return -1
	}
	return n
}

func (r Reply) Remaining() int { return r.Field("X-RateLimit-Remaining") }

// Client does not follow the environment's proxies and holds many connections.
var Client = &http.Client{
	Timeout: 20 * time.Second,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 512,
	},
}

// Get sends one request as the tenant.
func (g *Process) Get(path, tenant string) Reply {
	g.t.Helper()
	header := http.Header{}
	if tenant != "" {
		header.Set("X-Api-Key", tenant)
	}
	return g.Send(http.MethodGet, path, header)
}

func (g *Process) Send(method, path string, header http.Header) Reply {
	g.t.Helper()
	r, err := g.Try(method, path, header)
	if err != nil && g.reloaded.Load() {
		// Caddy itself loses connections that the listener which a reload closed
		// has accepted, with and without this module.
		r, err = g.Try(method, path, header)
	}
	if err != nil {
		g.t.Errorf("%s %s: %v\n%s", method, path, err, g.Log())
	}
	return r
}

func (g *Process) Try(method, path string, header http.Header) (Reply, error) {
	req, err := http.NewRequest(method, "http://"+g.Addr, http.NoBody)
	if err != nil {
		return Reply{}, err
	}
	req.URL.Opaque = "//" + g.Addr + path // the path as it is
	req.Header = header
	began := time.Now()
	res, err := Client.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return Reply{res.StatusCode, res.Header, string(body), time.Since(began)}, err
}

// Passes sends n requests one after another and returns how many got 200.
func (g *Process) Passes(n int, tenant string) (passed int) {
	g.t.Helper()
	for range n {
		switch r := g.Get("/", tenant); r.Status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			g.t.Errorf("status %d", r.Status)
		}
	}
	return passed
}

func (g *Process) From(address string, tenant ...string) Reply {
	g.t.Helper()
	header := http.Header{"X-Forwarded-For": {address}}
	if len(tenant) > 0 {
		header["X-Api-Key"] = tenant
	}
	return g.Send(http.MethodGet, "/", header)
}

// As sends one request with a header.
func (g *Process) As(name, value string) Reply {
	g.t.Helper()
	return g.Send(http.MethodGet, "/", http.Header{name: {value}})
}

// AfterReload sends one request, again if Caddy closes its connection with the
// servers of the old config.
func (g *Process) AfterReload(header http.Header) (r Reply) {
	g.t.Helper()
	Eventually(g.t, time.Minute, "an answer after the reload", func() (ok bool) {
		var err error
		r, err = g.Try(http.MethodGet, "/", header)
		return err == nil
	})
	return r
}
