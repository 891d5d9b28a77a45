package cases_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
	"github.com/caddygate/ratelimit/internal/servertest"
)

// ending is one way in which an answer of reverse_proxy may end, and what it costs
// where a request takes 5 and the header says 17.
type ending struct {
	name  string
	serve http.HandlerFunc
	ask   func(t *testing.T, g *gateway.Process, tenant string, arrived <-chan struct{})
	want  int
}

// endings are all ways that a service and a client have without a change of the gateway.
func endings() []ending {
	said := func(w http.ResponseWriter) { w.Header().Set("X-Cost", "17") }
	flushed := func(w http.ResponseWriter) {
		said(w)
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
	}
	waits := func(r *http.Request) { <-r.Context().Done() }
	return []ending{
		{"answer", func(w http.ResponseWriter, _ *http.Request) { said(w) }, asks, 17},
		{"304", func(w http.ResponseWriter, _ *http.Request) { said(w); w.WriteHeader(304) }, asks, 17},
		{"103", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "900")
			w.WriteHeader(103)
			said(w)
			w.WriteHeader(200)
		}, asks, 17},
		{"trailer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Cost")
			_, _ = io.WriteString(w, "body")
			said(w)
		}, asks, 5},
		{"no-number", func(http.ResponseWriter, *http.Request) {}, asks, 5},
		{"cut-before-the-header", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, asks, 5},
		{"cut-in-the-body", func(w http.ResponseWriter, _ *http.Request) { flushed(w); panic(http.ErrAbortHandler) }, asks, 17},
		{"client-gone-before-the-header", func(_ http.ResponseWriter, r *http.Request) { waits(r) }, leaves, 5},
		{"client-gone-in-the-body", func(w http.ResponseWriter, r *http.Request) { flushed(w); waits(r) }, leaves, 17},
		{"hijacked", hijacks, upgrades, 17},
	}
}

func asks(_ *testing.T, g *gateway.Process, tenant string, _ <-chan struct{}) {
	_, _ = g.Try(http.MethodGet, "/"+tenant, http.Header{"X-Api-Key": {tenant}})
}

// leaves breaks the connection off once the service has the request, and any answer has
// begun.
func leaves(t *testing.T, g *gateway.Process, tenant string, arrived <-chan struct{}) {
	conn, err := net.Dial("tcp", g.Addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\n\r\n", tenant, g.Addr, tenant)
	<-arrived
	if strings.HasSuffix(tenant, "body") {
		_, err = bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
	}
}

// hijacks takes the connection over, as a WebSocket does, and echoes a line.
func hijacks(w http.ResponseWriter, _ *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Cost: 17\r\n\r\n")
	line, _ := buffered.ReadString('\n')
	_, _ = io.WriteString(conn, line)
}

func upgrades(t *testing.T, g *gateway.Process, tenant string, _ <-chan struct{}) {
	conn, err := net.Dial("tcp", g.Addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframe\n", tenant, g.Addr, tenant)
	all, _ := io.ReadAll(conn)
	require.Contains(t, string(all), "101 Switching")
	require.True(t, strings.HasSuffix(string(all), "frame\n"), "%q", all)
}

// endingService ends the answers of each tenant as the ending of its name does, and tells
// when a request has arrived.
func endingService(t *testing.T, all []ending) (*service, []chan struct{}) {
	t.Helper()
	arrived := make([]chan struct{}, len(all))
	for i := range arrived {
		arrived[i] = make(chan struct{}, 1)
	}
	return newService(t, func(w http.ResponseWriter, r *http.Request) {
		for i, e := range all {
			if e.name == r.Header.Get("X-Api-Key") {
				select {
				case arrived[i] <- struct{}{}:
				default: // the request was sent again, on another connection
				}
				e.serve(w, r)
			}
		}
	}), arrived
}

// TestEndings: whatever ends an answer, it is settled once.
func TestEndings(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	all := endings()
	s, arrived := endingService(t, all)
	g := gateway.Start(t, charging(redis.URL(), "limit 1/1000s burst 1000\ncost 5\ncharge header X-Cost", s))
	var wait sync.WaitGroup
	for i, e := range all {
		wait.Go(func() { e.ask(t, g, e.name, arrived[i]) })
	}
	wait.Wait()
	for _, e := range all {
		gateway.Eventually(t, 20*time.Second, e.name+" is settled", func() bool { return balance(t, redis, e.name) == 1000-e.want })
	}
	require.Equal(t, len(all), int(redis.Client(t).DBSize(t.Context()).Val()))
	require.Zero(t, total("settlements_lost_total", g))
	// What takes long to come would come with the next call.
	require.Equal(t, 200, g.Get("/answer-2", "answer-2").Status)
	for _, e := range all {
		require.Equal(t, 1000-e.want, balance(t, redis, e.name), e.name)
	}
}

// TestEndingsOfGateways: what is under way when a configuration or a gateway ends is
// settled as well.
func TestEndingsOfGateways(t *testing.T) {
	t.Parallel()
	redis := servertest.Redis(t)
	release, under := make(chan struct{}), make(chan struct{}, 2)
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		under <- struct{}{}
		<-release
		costs(w, r)
	})
	site := charging(redis.URL(), "limit 1/1000s burst 1000\ncost 5\ncharge header X-Cost", s)
	g := gateway.Start(t, site)
	var wait sync.WaitGroup
	ask := func(tenant string) {
		wait.Go(func() {
			got, err := g.Try(http.MethodGet, "/", http.Header{"X-Api-Key": {tenant}, "X-Want": {"17"}})
			if err != nil || got.Status != 200 {
				t.Errorf("%s: %d, %v", tenant, got.Status, err)
			}
		})
		<-under
	}
	ask("reloaded")
	g.Reload(site)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask("stopped")
	stopped := make(chan struct{})
	go func() { g.Stop(); close(stopped) }()
	gateway.Eventually(t, time.Minute, "the gateway takes no more requests", func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", g.Addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(release)
	wait.Wait()
	<-stopped
	require.Equal(t, 1000-17, balance(t, redis, "reloaded"))
	require.Equal(t, 1000-17, balance(t, redis, "stopped"))
}
