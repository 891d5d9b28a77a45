package cases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

func init() { caddy.RegisterModule(slowSubscriber{}) }

// slowSubscriber writes each event to a file, and then sleeps.
type slowSubscriber struct {
	File  string         `json:"file,omitempty"`
	Sleep caddy.Duration `json:"sleep,omitempty"`
}

func (slowSubscriber) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.slow_test", New: func() caddy.Module { return new(slowSubscriber) }}
}

func (s *slowSubscriber) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	var sleep string
	if !d.Args(&s.File, &sleep) {
		return d.ArgErr()
	}
	parsed, err := caddy.ParseDuration(sleep)
	s.Sleep = caddy.Duration(parsed)
	return err
}

func (s *slowSubscriber) Handle(ctx context.Context, event caddy.Event) error {
	line, err := json.Marshal(map[string]any{"name": event.Name(), "origin": event.Origin().CaddyModule().ID, "data": event.Data})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "%s\n", line); err != nil {
		return err
	}
	select {
	case <-time.After(time.Duration(s.Sleep)):
	case <-ctx.Done():
	}
	return nil
}

// subscribed is a site whose events go to the file "events" of the gateway.
func subscribed(sleep, directive string) string {
	return gateway.Site("events {\non rate_limit_exceeded slow_test DIR/events "+sleep+"\n}", gateway.Answers(directive))
}

func TestEventOfARefusal(t *testing.T) {
	t.Parallel()
	for _, logKey := range []string{"", "log_key"} {
		directive := strings.TrimSuffix(zoneOf("{header.X-User}", 1, ""), "}") + logKey + "\n}"
		g := gateway.Start(t, subscribed("0", directive))
		require.Equal(t, []int{200, 429}, []int{g.As("X-User", "a").Status, g.As("X-User", "a").Status})
		gateway.Eventually(t, 10*time.Second, "the event", func() bool { return len(g.Events()) == 1 })
		event := g.Events()[0]
		require.Equal(t, "http.handlers.rate_limit", event["origin"])
		data := event["data"].(map[string]any)
		require.InDelta(t, float64(1000*time.Second), data["wait"], float64(60*time.Second))
		delete(data, "wait")
		want := map[string]any{"zone": "z", "route": "z", "remote_ip": "127.0.0.1", "client_ip": "127.0.0.1", "reason": "rate"}
		if logKey != "" {
			want["tenant"] = "a"
		}
		require.Equal(t, want, data)
	}
}

// TestEventOfAShadow only tells: the request passes.
func TestEventOfAShadow(t *testing.T) {
	t.Parallel()
	g := gateway.Start(t, subscribed("0", "rate_limit {\nshadow\nzone z {\nwindow 1000s\nevents 1\n}\n}"))
	require.Equal(t, []int{200, 200}, []int{g.Get("/", "").Status, g.Get("/", "").Status})
	gateway.Eventually(t, 10*time.Second, "the event", func() bool { return len(g.Events()) == 1 })
	require.Equal(t, true, g.Events()[0]["data"].(map[string]any)["shadow"])
}

func TestO4SlowSubscriber(t *testing.T) {
	t.Parallel()
	config := subscribed("1s", zoneOf("{header.X-User}", 1, ""))
	g := gateway.Start(t, config)
	began := time.Now()
	var together sync.WaitGroup
	replies := make([]gateway.Reply, 300)
	for i := range replies { // 100 a second, for 3 s
		together.Go(func() { replies[i] = g.As("X-User", "a") })
		time.Sleep(10 * time.Millisecond)
	}
	together.Wait()
	passed := 0
	for _, got := range replies {
		require.Less(t, got.Took, 5*time.Second, "nobody waits for the subscriber")
		if got.Status == 200 {
			passed++
		}
	}
	require.Equal(t, 1, passed)
	require.LessOrEqual(t, float64(len(g.Events())), time.Since(began).Seconds()+1, "one event a second")
	require.NotEmpty(t, g.Events())
	began = time.Now()
	g.Reload(config)
	require.Less(t, time.Since(began), 20*time.Second, "nor does a reload")
	require.Equal(t, 429, g.AfterReload(http.Header{"X-User": {"a"}}).Status)
}
