// Package browser shows the page in a real browser, Chromium without a window, which
// it starts by itself: for the page's tests, and for the pictures in docs. It is a
// module of its own, so that the gateway's needs none of it.
package browser

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// ErrNoChromium says how to get the browser.
var ErrNoChromium = errors.New("no Chromium is found. Debian: apt-get install chromium-headless-shell (64 MB). Else install Chromium or Google Chrome")

// Start starts Chromium, which ends with the context.
func Start(ctx context.Context) (context.Context, context.CancelFunc, error) {
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		return nil, nil, ErrNoChromium
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("font-render-hinting", "none"))
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	started, _ := chromedp.NewContext(allocator)
	if err := chromedp.Run(started); err != nil {
		end()
		return nil, nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return started, end, nil
}
