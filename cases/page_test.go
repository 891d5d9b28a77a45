package cases_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// running is a command that goes on until it is interrupted.
type running struct {
	t     *testing.T
	lines chan string
	end   func() error
}

// runs starts a command of the gateway's Caddy.
func runs(t *testing.T, g *gateway.Process, args ...string) *running {
	t.Helper()
	cmd := g.Command(args...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	r := &running{t: t, lines: make(chan string, 1000)}
	go func() {
		defer close(r.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	r.end = func() error {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		for range r.lines {
			continue
		}
		return cmd.Wait()
	}
	return r
}

// line waits for a line that has a text.
func (r *running) line(want string) string {
	r.t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case line, more := <-r.lines:
			if strings.Contains(line, want) {
				return line
			}
			require.True(r.t, more, "the command ended without %q", want)
		case <-timeout.C:
			r.t.Fatalf("the command does not print %q", want)
		}
	}
}

// TestThePage is what a browser asks of the page, of two gateways on one Redis.
func TestThePage(t *testing.T) {
	t.Parallel()
	redis, _, _ := stores(t)
	config := gateway.Site(`rate_limit {
		redis `+redis.URL()+` {
			timeout 5s
		}
		default 1/1000s burst 3
		guest_secret 0123456789abcdef
	}`, orders)
	a, b := gateway.Start(t, config), gateway.Start(t, config)
	require.Equal(t, 3, a.Passes(5, "shop-a"))

	command := runs(t, a, "rate-limit", "page", "--address", a.Admin, "--address", b.Admin)
	url := command.line("http://127.0.0.1:")
	command.line("It holds a secret")
	own := strings.Join(strings.SplitN(url, "/", 4)[:3], "/")
	call := func(method, url, body, origin string) (int, object) {
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		answer := object{}
		require.NoError(t, json.Unmarshal(text, &answer), "%s", text)
		return response.StatusCode, answer
	}
	_, answer := call(http.MethodGet, url+"gateways", "", "")
	require.Equal(t, []any{a.Admin, b.Admin}, answer["gateways"])
	for _, gateway := range []string{"0", "1"} {
		for _, path := range []string{"status", "history", "events", "top?limit=50", "top?by=requests&limit=50"} {
			status, answer := call(http.MethodGet, url+"at/"+gateway+"/rate_limit/"+path, "", "")
			require.Equal(t, http.StatusOK, status, "%s: %v", path, answer)
		}
	}
	_, answer = call(http.MethodGet, url+"at/0/rate_limit/top", "", "")
	key := at(t, answer, "buckets", 0, "key").(string)
	require.Zero(t, b.Passes(4, "shop-a"))
	out, errs, code := a.Caddy("rate-limit", "top", "--address", a.Admin, "--address", b.Admin)
	require.Zero(t, code, errs)
	require.Contains(t, out, "6        0               shop-a  create-order", "2 by one gateway, and 4 by the other")
	out, errs, code = a.Caddy("rate-limit", "top", "--json", "--address", a.Admin, "--address", b.Admin)
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), new(object)))
	nobody := servertest.FreeAddr(t)
	_, errs, code = a.Caddy("rate-limit", "top", "--address", a.Admin, "--address", nobody)
	require.NotZero(t, code)
	require.Contains(t, errs, "no Caddy answers at the admin address "+nobody)
	_, answer = call(http.MethodPost, url+"at/1/rate_limit/explain", "route=create-order&key="+key, own)
	require.Equal(t, "refused", at(t, answer, "handlers", 0, "next", "outcome"))

	status, _ := call(http.MethodDelete, url+"at/0/rate_limit/bucket", "route=create-order&key="+key, "http://elsewhere.example")
	require.Equal(t, http.StatusForbidden, status)
	status, _ = call(http.MethodPost, url+"at/0/load", "", own)
	require.Equal(t, http.StatusForbidden, status)
	status, _ = call(http.MethodGet, own+"/x/at/0/rate_limit/status", "", "")
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, 0, a.Passes(1, "shop-a"), "nobody has changed anything")
	status, answer = call(http.MethodDelete, url+"at/0/rate_limit/bucket", "route=create-order&key="+key, own)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "reset", at(t, answer, "buckets", 0, "redis"))
	require.Equal(t, 3, a.Passes(5, "shop-a"))
	require.NoError(t, command.end(), "an interrupt is how it ends")

	for _, test := range []struct{ args, want string }{
		{"--address nowhere", "it is no host with a port: allowed are"},
		{"--address " + a.Admin + " --address " + a.Admin, "is there twice"},
		{"--port 70000", "invalid argument"},
		{"now", "is no flag"},
	} {
		_, errs, code := a.Caddy(append([]string{"rate-limit", "page"}, strings.Fields(test.args)...)...)
		require.NotZero(t, code, test.args)
		require.Contains(t, errs, test.want, test.args)
	}
}

// TestCommandsThatGoOn show what is new until they are interrupted, also while no
// gateway answers.
func TestCommandsThatGoOn(t *testing.T) {
	t.Parallel()
	redis, _, _ := stores(t)
	g := gateway.Start(t, gateway.Site(`rate_limit {
		redis `+redis.URL()+` {
			timeout 5s
		}
		default 1/1000s burst 3
		guest_secret 0123456789abcdef
	}`, orders))
	top := runs(t, g, "rate-limit", "top", "--watch", "--address", g.Admin)
	top.line("refusals of the last ")
	events := runs(t, g, "rate-limit", "events", "--follow", "--address", g.Admin)
	g.Passes(5, "shop-a")
	top.line("shop-a  create-order")
	redis.Kill(t)
	require.Contains(t, events.line("redis unreached"), "reason ")
	status := runs(t, g, "rate-limit", "status", "--watch", "--address", g.Admin)
	status.line("decides ")
	g.Stop()
	status.line("Error: no Caddy answers at the admin address")
	for _, command := range []*running{top, events, status} {
		require.NoError(t, command.end(), "an interrupt is how it ends")
	}
	_, errs, code := g.Caddy("rate-limit", "top", "--watch", "--json", "--address", g.Admin)
	require.NotZero(t, code)
	require.Contains(t, errs, "--watch and --json do not go together")
}
