// Package gateway runs gateways for tests: real Caddy processes with this module, asked
// over HTTP, by their admin API and by their commands. Start at gateway.go.
package gateway

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// Main runs the tests, or Caddy where the test binary was started as a gateway. A
// package's TestMain calls it.
func Main(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// Process is a Caddy process with this module, and the folder that it writes to.
type Process struct {
	Addr  string // of the site
	Admin string // of the admin API
	Dir   string
	Cmd   *exec.Cmd

	t        testing.TB
	env      []string
	ended    chan struct{}
	reloaded atomic.Bool
}

// Site is a Caddyfile with one site. ADDR and ADMIN in it are replaced.
func Site(global, body string) string {
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

// Answers is a site body: the directive, an answer that tells the source, and
// the same for a refusal.
func Answers(directive string) string {
	return directive + `
	header >X-Source {http.rate_limit.source}
	respond "ok"
	handle_errors {
		header X-Source {http.rate_limit.source}
		respond "{err.status_code}"
	}`
}

// startGateway runs Caddy with the Caddyfile and waits until it serves.
func Start(t testing.TB, caddyfile string, env ...string) *Process {
	t.Helper()
	g := New(t, env...)
	g.Start(caddyfile)
	return g
}

func New(t testing.TB, env ...string) *Process {
	t.Helper()
	return &Process{t: t, Addr: servertest.FreeAddr(t), Admin: servertest.FreeAddr(t), Dir: t.TempDir(), env: env}
}

// At is the same gateway, asked at another address of its site.
func (g *Process) At(addr string) *Process {
	other := &Process{t: g.t, Dir: g.Dir, Admin: g.Admin, Addr: addr}
	other.reloaded.Store(true)
	return other
}

func (g *Process) Start(caddyfile string) {
	g.t.Helper()
	path := filepath.Join(g.Dir, "Caddyfile")
	require.NoError(g.t, os.WriteFile(path, []byte(g.Fill(caddyfile)), 0o600))
	g.Cmd = g.Command("run", "--config", path, "--adapter", "caddyfile")
	log, err := os.OpenFile(g.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(g.t, err)
	defer log.Close()
	g.Cmd.Stdout, g.Cmd.Stderr = log, log
	require.NoError(g.t, g.Cmd.Start())
	ended := make(chan struct{})
	g.ended = ended
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(ended)
	}(g.Cmd)
	g.t.Cleanup(g.Stop)
	g.Await()
}

func (g *Process) Fill(caddyfile string) string {
	return strings.NewReplacer("ADDR", g.Addr, "ADMIN", g.Admin, "DIR", g.Dir).Replace(caddyfile)
}

func (g *Process) Stop() {
	if g.Cmd == nil {
		return
	}
	_ = g.Cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.ended:
	case <-time.After(30 * time.Second):
		g.Kill()
		g.t.Errorf("the gateway did not stop:\n%s", g.Log())
	}
	if log := g.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "panicked") {
		g.t.Errorf("the gateway is broken:\n%s", log)
	}
}

func (g *Process) Kill() {
	_ = g.Cmd.Process.Kill()
	<-g.ended
}

func (g *Process) Await() {
	g.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := net.Dial("tcp", g.Addr)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-g.ended:
			g.t.Fatalf("the gateway ended:\n%s", g.Log())
		default:
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the gateway does not serve: %v\n%s", err, g.Log())
		}
		time.Sleep(5 * time.Millisecond)
	}
}
