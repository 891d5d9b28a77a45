package browser

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// asked waits until a gateway has had a call.
func asked(t *testing.T, g *gateway, want string) {
	t.Helper()
	called := func() bool { return slices.Contains(g.calls(), want) }
	for end := time.Now().Add(deadline); !called() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	require.Contains(t, g.calls(), want)
}

// click clicks an element that is shown.
func (b *tab) click(selector string) {
	b.t.Helper()
	const ready = "(node => node && node.checkVisibility() && !node.disabled)"
	require.Eventually(b.t, func() bool { return value[bool](b, "!!"+ready+"(document.querySelector('"+selector+"'))") }, deadline, 20*time.Millisecond, "%s is not shown", selector)
	b.run(chromedp.Evaluate("document.querySelector('"+selector+"').click()", nil))
}

// focused is what has the keyboard.
func (b *tab) focused() string {
	b.t.Helper()
	return value[string](b, "document.activeElement.id || document.activeElement.textContent")
}

// tabTo presses the tab key until something has the keyboard.
func (b *tab) tabTo(want string) {
	b.t.Helper()
	for range 60 {
		if b.focused() == want {
			return
		}
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	b.t.Fatalf("the tab key does not lead to %q", want)
}

// press presses a key as a keyboard does: what the page does with it comes before its
// text, which chromedp.KeyEvent sends for itself.
func press(key string) chromedp.Action {
	return input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithText(key)
}

func TestUpdates(t *testing.T) {
	gateways := fleet(t, 2)
	b := open(t, gateways...)
	b.shows("#verdict", "All is well")
	b.shows("#events", "Nothing has changed its state.")
	began := ago(89)
	gateways[1].set(func() {
		s := gateways[1].status()
		s.Source = "local"
		s.Redis.Nodes[0].Breaker, s.Redis.Nodes[0].Since, s.Redis.Nodes[0].Connections = "open", &began, 0
		gateways[1].answers["events"] = &adminapi.Events{Last: 7, Events: []adminapi.Event{
			{Number: 7, At: began, Name: "rate_limit_breaker_opened", Data: map[string]any{"node": redisNode, "reason": "timeout"}},
		}}
	})
	b.shows("#verdict", "Redis "+redisNode+" is not reached since ")
	b.shows("#verdict", "; 1 of 2 gateways decides by itself")
	b.shows("#events", "breaker opened: node "+redisNode+", reason timeout")
	gateways[1].set(func() {
		s := gateways[1].status()
		s.Source = "redis"
		s.Redis.Nodes[0].Breaker, s.Redis.Nodes[0].Connections = "closed", 4
	})
	b.shows("#verdict", "All is well")
	b.inOrder()
}

func TestExplainAndReset(t *testing.T) {
	g := newGateway(t)
	b := open(t, g)
	b.shows("#verdict", "All is well: the gateway answers")
	b.run(chromedp.SendKeys("#tenant", "shop-b"), chromedp.SetValue("#route", "create-order"))
	b.click("#explain")
	asked(t, g, "POST explain route=create-order&tenant=shop-b")
	b.shows("#answer", "The next request of s•••••• on create-order is refused (429), by redis; it may come again in 1 s.")
	b.shows("#answer", "What counts is the rule of the table for s•••••• on create-order: 20/s burst 40, token_bucket, enforce.")
	require.NotContains(t, b.text("body"), "shop-b")
	b.size(1280, 1100)
	b.picture("explain")

	b.click("#reset")
	b.shows("#asked", "Make the bucket of s•••••• on create-order full again")
	b.click("#question button[value=no]")
	require.NotContains(t, strings.Join(g.calls(), "\n"), "DELETE", "No is no")
	b.click("#reset")
	b.click("#yes")
	asked(t, g, "DELETE bucket route=create-order&tenant=shop-b")
	b.shows("#answer", "It is full again, on create-order (Redis: reset).")

	b.click("#names")
	b.shows("#refused", "shop-b")
	b.click("#refused tbody tr:first-child button:first-child")
	asked(t, g, "POST explain key=shop-b&route=create-order")
	b.click("#refresh")
	b.click("#yes")
	asked(t, g, "POST rules/refresh ")
	b.shows("#answer", "3,012 rules in force, 0 bad rows, as before")
	b.inOrder()
}

// TestHostileText has markup in everything that others may name.
func TestHostileText(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)><script>alert(2)</script>"'&`
	g := newGateway(t)
	s := g.status()
	s.Routes = []string{evil}
	s.Version = evil
	s.Rules.LastError, s.Rules.Failures, s.Rules.Rejected = evil, 3, 1
	s.Rules.Rejections = []adminapi.RejectedRow{{ID: evil, Route: evil, Reason: evil}}
	s.Redis.Nodes[0].LastError = &adminapi.NodeError{Reason: evil, Words: evil, At: ago(80)}
	g.answers["top"] = &adminapi.Top{Buckets: []adminapi.TopBucket{bucket(evil, evil, 9), bucket("\u202egnitrats", "x", 3), bucket(strings.Repeat("W", 500), "y", 2)}}
	g.answers["events"] = &adminapi.Events{Last: 1, Events: []adminapi.Event{{Number: 1, At: ago(80), Name: evil, Data: map[string]any{evil: evil}}}}
	b := open(t, g)
	b.shows("#refused", "<img••••••")
	require.NotContains(t, b.text("#refused td:nth-child(2)"), "onerror")
	b.click("#names")
	b.shows("#refused", evil)
	b.shows("#events", evil)
	b.shows("#rules", evil)
	b.shows("#redis", evil)
	b.click("#refused tbody tr:first-child button:first-child")
	b.shows("#answer", "The next request of "+evil)
	require.Zero(t, value[int](b, "document.querySelectorAll('img, #refused script, #answer script').length"), "it stays text")
	require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 1280)
	b.inOrder()
}

// TestKeyboardAlone explains and resets without a mouse.
func TestKeyboardAlone(t *testing.T) {
	g := newGateway(t)
	b := open(t, g)
	b.shows("#verdict", "All is well")
	b.run(chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "To the question about a tenant", b.focused())
	b.run(chromedp.KeyEvent("n"))
	b.shows("#refused", "shop-b")
	b.run(chromedp.KeyEvent("n"), press("/"))
	require.Equal(t, "tenant", b.focused())
	b.run(chromedp.KeyEvent("shop-n/p"), chromedp.KeyEvent(kb.Enter))
	asked(t, g, "POST explain route=create-order&tenant=shop-n%2Fp")
	b.tabTo("reset")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.shows("#asked", "full again")
	require.Equal(t, "No", b.focused(), "Enter alone changes nothing")
	b.run(chromedp.KeyEvent(kb.Escape))
	require.Equal(t, "reset", b.focused(), "who says no is where they were")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.tabTo("yes")
	b.run(chromedp.KeyEvent(kb.Enter))
	asked(t, g, "DELETE bucket route=create-order&tenant=shop-n%2Fp")

	b.run(chromedp.Focus("#outcomes"), chromedp.KeyEvent(kb.ArrowLeft))
	b.shows("#outcomes .when", "at ")
	b.run(chromedp.Focus("#refused tbody tr:first-child button:first-child"))
	g.set(func() {
		g.answers["top"] = &adminapi.Top{Buckets: []adminapi.TopBucket{bucket("shop-x", "login", 99), bucket("shop-b", "create-order", 41)}}
	})
	b.shows("#refused", "99")
	require.Equal(t, "Why?", b.focused(), "rows that move do not take the keyboard away")
	b.inOrder()
}

// TestBadAnswers has a gateway answer what it should not. The page says which call
// failed, and keeps what it had, with its age.
func TestBadAnswers(t *testing.T) {
	tests := map[string]struct {
		fail func(http.ResponseWriter)
		say  string
	}{
		"403": {func(w http.ResponseWriter) {
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"error":"host not allowed"}`)
		}, "403: host not allowed"},
		"500": {func(w http.ResponseWriter) { w.WriteHeader(500) }, "it answered 500 without a reason"},
		"half": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"version":"v0.3.0","memory":`)
		}, "its answer broke off after 29 bytes"},
		"other": {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `[{"status":null}]`) }, "its answer is not what this page understands"},
		"null":  {func(w http.ResponseWriter) { _, _ = io.WriteString(w, `null`) }, "its answer is not what this page understands"},
		"nothing": {func(w http.ResponseWriter) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}, "it closed the connection without an answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateways := fleet(t, 2)
			b := open(t, gateways...)
			b.shows("#verdict", "All is well")
			b.shows("#refused", "create-order")
			gateways[1].set(func() { gateways[1].fails["status"] = test.fail })
			b.shows("#verdict", "Gateway "+gateways[1].address+" has not told its status since ")
			b.shows("#verdict", "("+test.say+"); what is shown of it is from ")
			b.shows("#gateways", setA[:8])
			gateways[1].set(func() {
				delete(gateways[1].fails, "status")
				gateways[1].fails["top"], gateways[1].fails["history"] = test.fail, test.fail
			})
			b.shows("#verdict", "/rate_limit/history failed at "+gateways[1].address+" since ")
			b.shows("#verdict", "("+test.say)
			b.shows("#refused", "create-order")
			gateways[1].set(func() { clear(gateways[1].fails) })
			b.shows("#verdict", "All is well")
			b.inOrder()
		})
	}
}

// TestOlderGateway has none of the calls that the page came with.
func TestOlderGateway(t *testing.T) {
	g := newGateway(t)
	for _, call := range []string{"history", "events", "asking"} {
		g.fails[call] = func(w http.ResponseWriter) {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, `{"error":"\"/rate_limit/x\" is not there: there are GET /rate_limit/status"}`)
		}
	}
	b := open(t, g)
	b.shows("#verdict", "All is well")
	b.shows("#outcomes", "is not counted by a gateway of this version")
	b.shows("#asking", "Gateways of this version do not tell.")
	b.inOrder()
}

// TestCommandHasEnded shows a page whose server is gone, and one with another token.
func TestCommandHasEnded(t *testing.T) {
	g := newGateway(t)
	b, end := openUntil(t, g)
	b.shows("#verdict", "All is well")
	end()
	b.shows("#verdict", "This page has not reached its command since ")
	b.shows("#gateways", setA[:8])

	other := open(t, g)
	own := strings.Split(other.url, "/")
	b = visit(t, strings.Join(own[:3], "/")+"/WRONG/")
	b.shows("body", "this is not the address of the page that runs")
}

// TestOldAge says how old what it shows is, while the page is paused.
func TestPaused(t *testing.T) {
	g := newGateway(t)
	b := open(t, g)
	b.shows("#verdict", "All is well")
	b.run(chromedp.KeyEvent("p"))
	b.shows("#asof", "Paused, as of ")
	b.shows("#asof", " s ago")
	b.inOrder()
}
