// Command picture keeps what a page shows as a PNG, as soon as it shows a text. It
// looks at the page for as long as is said before, so that charts have something.
//
//	picture -url "$(head -n 1 page.log)" -out docs/img/page.png -text 'All is well'
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/caddygate/ratelimit/internal/cli/page/browser"
)

// options are the command's flags.
type options struct {
	url, out, text, click string
	width, height         int64
	dark                  bool
	within, look          time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "the address of the page")
	flag.StringVar(&o.out, "out", "page.png", "the file to write")
	flag.StringVar(&o.text, "text", "", "what the page has to show")
	flag.StringVar(&o.click, "click", "", "selectors of what to click before, divided by commas")
	flag.Int64Var(&o.width, "width", 1280, "the window's width, in pixels")
	flag.Int64Var(&o.height, "height", 640, "the window's height, in pixels")
	flag.BoolVar(&o.dark, "dark", false, "show the page dark")
	flag.DurationVar(&o.within, "within", time.Minute, "how long to wait for the text")
	flag.DurationVar(&o.look, "look", 2*time.Second, "how long to look at the page at least")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run opens the page, waits for the text and keeps the picture.
func run(ctx context.Context, o options) error {
	started, end, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(started, o.within+o.look)
	defer cancel()
	scheme := "light"
	if o.dark {
		scheme = "dark"
	}
	if err := chromedp.Run(ctx,
		emulation.SetDeviceMetricsOverride(o.width, o.height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate(o.url), chromedp.Sleep(o.look)); err != nil {
		return fmt.Errorf("opening the page: %w", err)
	}
	for _, selector := range strings.FieldsFunc(o.click, func(r rune) bool { return r == ',' }) {
		if err := chromedp.Run(ctx, chromedp.Click(selector, chromedp.ByQuery)); err != nil {
			return fmt.Errorf("clicking %s: %w", selector, err)
		}
	}
	return keep(ctx, o)
}

// keep waits for the text and writes the picture.
func keep(ctx context.Context, o options) error {
	shown, png := "", []byte(nil)
	for !strings.Contains(shown, o.text) || shown == "" {
		if err := chromedp.Run(ctx, chromedp.Sleep(200*time.Millisecond), chromedp.Evaluate("document.body.innerText", &shown)); err != nil {
			return fmt.Errorf("the page does not show %q, but %.200q: %w", o.text, shown, err)
		}
	}
	if err := chromedp.Run(ctx, chromedp.CaptureScreenshot(&png)); err != nil {
		return fmt.Errorf("taking the picture: %w", err)
	}
	if err := os.WriteFile(o.out, png, 0o644); err != nil { //nolint:gosec // a picture for all
		return fmt.Errorf("keeping the picture: %w", err)
	}
	return nil
}
