package ratelimit_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"

	_ "github.com/caddygate/ratelimit"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// asCaddy in the environment makes the test binary Caddy, so that tests run
// real gateways, each a process of its own, without building another binary.
const asCaddy = "RATELIMIT_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// gateway is a Caddy process with this module.
type gateway struct {
	t     testing.TB
	addr  string // of the site
	admin string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
	env   []string

	reloaded atomic.Bool
}

// site is a Caddyfile with one site. ADDR and ADMIN in it are replaced.
func site(global, body string) string {
	return fmt.Sprintf(`{
	admin ADMIN
	auto_https off
	persist_config off
	storage file_system DIR/storage
	%s
}
http://ADDR {
	%s
}
`, global, body)
}

// answers is a site body: the directive, an answer that tells the source, and
// the same for a refusal.
func answers(directive string) string {
	return directive + `
	header >X-Source {http.rate_limit.source}
	respond "ok"
	handle_errors {
		header X-Source {http.rate_limit.source}
		respond "{err.status_code}"
	}`
}

// startGateway runs Caddy with the Caddyfile and waits until it serves.
func startGateway(t testing.TB, caddyfile string, env ...string) *gateway {
	t.Helper()
	g := newGateway(t, env...)
	g.start(caddyfile)
	return g
}

func newGateway(t testing.TB, env ...string) *gateway {
	t.Helper()
	return &gateway{t: t, addr: servertest.FreeAddr(t), admin: servertest.FreeAddr(t), dir: t.TempDir(), env: env}
}

func (g *gateway) start(caddyfile string) {
	g.t.Helper()
	path := filepath.Join(g.dir, "Caddyfile")
	require.NoError(g.t, os.WriteFile(path, []byte(g.fill(caddyfile)), 0o600))
	g.cmd = g.command("run", "--config", path, "--adapter", "caddyfile")
	log, err := os.OpenFile(g.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(g.t, err)
	defer log.Close()
	g.cmd.Stdout, g.cmd.Stderr = log, log
	require.NoError(g.t, g.cmd.Start())
	ended := make(chan struct{})
	g.ended = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(ended)
	}(g.cmd)
	g.t.Cleanup(g.stop)
	g.await()
}

// command is Caddy with the arguments.
func (g *gateway) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCaddy+"=1", "HOME="+g.dir, "XDG_DATA_HOME="+g.dir, "XDG_CONFIG_HOME="+g.dir)
	cmd.Env = append(cmd.Env, g.env...)
	return cmd
}

func (g *gateway) fill(caddyfile string) string {
	return strings.NewReplacer("ADDR", g.addr, "ADMIN", g.admin, "DIR", g.dir).Replace(caddyfile)
}

func (g *gateway) stop() {
	if g.cmd == nil {
		return
	}
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.ended:
	case <-time.After(10 * time.Second):
		g.kill()
		g.t.Errorf("the gateway did not stop:\n%s", g.log())
	}
	if log := g.log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "panicked") {
		g.t.Errorf("the gateway is broken:\n%s", log)
	}
}

func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

func (g *gateway) await() {
	g.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", g.addr)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-g.ended:
			g.t.Fatalf("the gateway ended:\n%s", g.log())
		default:
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the gateway does not serve: %v\n%s", err, g.log())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (g *gateway) logFile() string { return filepath.Join(g.dir, "log") }

func (g *gateway) log() string {
	text, _ := os.ReadFile(g.logFile())
	return string(text)
}

// reply is what a client sees.
type reply struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

func (r reply) source() string { return r.header.Get("X-Source") }

// field is a number of the header, -1 where it is missing.
func (r reply) field(name string) int {
	n, err := strconv.Atoi(r.header.Get(name))
	if err != nil {
		return -1
	}
	return n
}

func (r reply) remaining() int { return r.field("X-RateLimit-Remaining") }

// adminClient makes a connection for each request, because each reload replaces
// the admin server.
var adminClient = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// client does not follow the environment's proxies and holds many connections.
var client = &http.Client{
	Timeout: 20 * time.Second,
	Transport: &http.Transport{
		MaxIdleConnsPerHost: 512,
	},
}

// get sends one request as the tenant.
func (g *gateway) get(path, tenant string) reply {
	g.t.Helper()
	header := http.Header{}
	if tenant != "" {
		header.Set("X-Api-Key", tenant)
	}
	return g.send(http.MethodGet, path, header)
}

func (g *gateway) send(method, path string, header http.Header) reply {
	g.t.Helper()
	r, err := g.try(method, path, header)
	if err != nil && g.reloaded.Load() {
		// Caddy itself loses connections that the listener which a reload closed
		// has accepted, with and without this module.
		r, err = g.try(method, path, header)
	}
	if err != nil {
		g.t.Errorf("%s %s: %v\n%s", method, path, err, g.log())
	}
	return r
}

func (g *gateway) try(method, path string, header http.Header) (reply, error) {
	req, err := http.NewRequest(method, "http://"+g.addr, http.NoBody)
	if err != nil {
		return reply{}, err
	}
	req.URL.Opaque = "//" + g.addr + path // the path as it is
	req.Header = header
	began := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(body), time.Since(began)}, err
}

// passes sends n requests one after another and returns how many got 200.
func (g *gateway) passes(n int, tenant string) (passed int) {
	g.t.Helper()
	for range n {
		switch r := g.get("/", tenant); r.status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			g.t.Errorf("status %d", r.status)
		}
	}
	return passed
}

// load posts the Caddyfile to the admin API, forced, and returns the status.
func (g *gateway) load(caddyfile string) (int, string) {
	g.t.Helper()
	g.reloaded.Store(true)
	return g.post("/load", "text/caddyfile", g.fill(caddyfile))
}

func (g *gateway) post(path, contentType, body string) (int, string) {
	g.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+g.admin+path, strings.NewReader(body))
	require.NoError(g.t, err)
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Cache-Control", "must-revalidate")
	var res *http.Response
	for range 100 { // a reload replaces the admin API
		if res, err = adminClient.Do(req); err == nil {
			break
		}
		req.Body = io.NopCloser(strings.NewReader(body))
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(g.t, err)
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if strings.Contains(string(text), `{"error":`) {
		// Caddy before 2.11 answers 200 where it has warnings to tell first.
		return http.StatusBadRequest, string(text)
	}
	return res.StatusCode, string(text)
}

// reload is load of a config that must be taken.
func (g *gateway) reload(caddyfile string) {
	g.t.Helper()
	status, text := g.load(caddyfile)
	require.Equal(g.t, http.StatusOK, status, text)
}

// adminGet reads from the admin API.
func (g *gateway) adminGet(path string) string {
	g.t.Helper()
	var res *http.Response
	eventually(g.t, 10*time.Second, "the admin API answers, which a reload replaces", func() (ok bool) {
		var err error
		res, err = adminClient.Get("http://" + g.admin + path)
		return err == nil
	})
	defer res.Body.Close()
	var text bytes.Buffer
	_, err := text.ReadFrom(res.Body)
	require.NoError(g.t, err)
	return text.String()
}

// eventually polls until ok, and fails with what was waited for.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
