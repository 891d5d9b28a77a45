// Package browser tests the page in a real browser, Chromium without a window, which
// it starts by itself. It is a module of its own, so that the gateway's needs none of it.
package browser

import (
	"context"
	"os"
	"os/exec"
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

// chromium finds the browser, and says how to get it.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium is found. Debian: apt-get install chromium-headless-shell (64 MB). Ubuntu, macOS: install Chromium or Google Chrome")
	return ""
}

// deadline is for what takes a moment, on a busy machine.
const deadline = 15 * time.Second

// tab is a page in the browser, and what the browser complained of.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu      sync.Mutex
	errors  []string
	foreign []string
}

// one browser is for all tests, a tab for each.
var (
	once    sync.Once
	browser context.Context
)

func TestMain(m *testing.M) {
	ctx, cancel := context.WithCancel(context.Background())
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.Flag("font-render-hinting", "none"))
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			options = append(options, chromedp.ExecPath(path))
			break
		}
	}
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	browser, _ = chromedp.NewContext(allocator)
	status := m.Run()
	end()
	cancel()
	os.Exit(status)
}

// open shows the page of the gateways in a tab.
func open(t *testing.T, gateways ...*gateway) *tab {
	t.Helper()
	chromium(t)
	addresses := make([]string, len(gateways))
	for i, g := range gateways {
		addresses[i] = g.address
	}
	p, err := page.Open(t.Context(), page.Options{Addresses: addresses})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return visit(t, p.URL())
}

// visit opens an address in a new tab.
func visit(t *testing.T, url string) *tab {
	t.Helper()
	once.Do(func() { require.NoError(t, chromedp.Run(browser)) })
	ctx, cancel := chromedp.NewContext(browser)
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
