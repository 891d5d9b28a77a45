package browser

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/cli/page"
)

// deadline is for what takes a moment, on a busy machine.
const deadline = 30 * time.Second

// tab is a page in the browser, and what the browser complained of.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu      sync.Mutex
	errors  []string
	foreign []string
}

// chromium is one browser for all tests, with a tab for each.
var chromium context.Context

func TestMain(m *testing.M) {
	started, end, err := Start(context.Background())
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
	chromium = started
	status := m.Run()
	end()
	os.Exit(status)
}

// open shows the page of the gateways in a tab.
func open(t *testing.T, gateways ...*gateway) *tab {
	t.Helper()
	b, _ := openUntil(t, gateways...)
	return b
}

// openUntil also returns what ends the page's server.
func openUntil(t *testing.T, gateways ...*gateway) (b *tab, end func()) {
	t.Helper()
	addresses := make([]string, len(gateways))
	for i, g := range gateways {
		addresses[i] = g.address
	}
	p, err := page.Open(t.Context(), page.Options{Addresses: addresses})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(end)
	return visit(t, p.URL()), end
}

// visit opens an address in a new tab.
func visit(t *testing.T, url string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, url: url}
	host := strings.Join(strings.SplitN(url, "/", 4)[:3], "/")
	chromedp.ListenTarget(ctx, func(event any) { b.hear(event, host) })
	require.NoError(t, chromedp.Run(ctx)) // a tab ends with the context of its first call
	b.run(network.Enable(), log.Enable(), runtime.Enable())
	b.size(1280, 900)
	b.run(chromedp.Navigate(url))
	return b
}

// hear keeps what a page in order does not cause.
func (b *tab) hear(event any, host string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		if e.Entry.Source != log.SourceNetwork { // a gateway that fails is told on the page
			b.errors = append(b.errors, e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		b.errors = append(b.errors, "console: "+e.Type.String())
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, host+"/") {
			b.foreign = append(b.foreign, e.Request.URL)
		}
	}
}

// inOrder fails where the browser complained, or was sent elsewhere.
func (b *tab) inOrder() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.errors, "the console")
	require.Empty(b.t, b.foreign, "requests to others")
}

func (b *tab) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, deadline)
	defer cancel()
	require.NoError(b.t, chromedp.Run(ctx, actions...))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.run(emulation.SetDeviceMetricsOverride(width, height, 1, false))
}

func (b *tab) dark() {
	b.t.Helper()
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
}

// value evaluates an expression in the page.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	b.run(chromedp.Evaluate(expression, &v))
	return v
}

// text is what an element shows.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return value[string](b, "(document.querySelector('"+selector+"') || {innerText: ''}).innerText")
}

// shows waits until an element shows a text.
func (b *tab) shows(selector, want string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return strings.Contains(b.text(selector), want) }, deadline, 50*time.Millisecond,
		"%s does not show %q", selector, want)
}

// picture keeps what the tab shows under a name, in the folder that PAGE_PICTURES names.
func (b *tab) picture(name string) {
	b.t.Helper()
	var png []byte
	b.run(chromedp.CaptureScreenshot(&png))
	require.NotEmpty(b.t, png)
	if folder := os.Getenv("PAGE_PICTURES"); folder != "" {
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600))
	}
}
