// Command load is the traffic of the video API in this example, and the service
// behind it: it sends what users, guests and scrapers send, once past the limits
// and once through them, and tells what share of each one's requests was served.
// It talks to 127.0.0.1 only. See docs/video.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"
)

// options are the command's flags.
type options struct {
	backend string
	before  string
	after   string
	csv     string
	svg     string
	length  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.backend, "backend", "127.0.0.1:9000", "the address that the service listens on")
	flag.StringVar(&o.before, "before", "http://127.0.0.1:8079", "the gateway without limits")
	flag.StringVar(&o.after, "after", "http://127.0.0.1:8080", "the gateways with limits, with commas between them")
	flag.StringVar(&o.csv, "csv", "", "the file for the numbers; none: standard output only")
	flag.StringVar(&o.svg, "svg", "", "the file for the plot; none: no plot")
	flag.DurationVar(&o.length, "length", 15*time.Second, "how long each of the two runs is, from 1s to 25s")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		stop()
		os.Exit(1)
	}
}

// run measures both runs and writes what came of them.
func run(ctx context.Context, o options) error {
	if o.length < time.Second || o.length > 25*time.Second {
		return fmt.Errorf("length: %v is out of bounds: allowed are 1s to 25s", o.length)
	}
	gateways := strings.Split(o.after, ",")
	if err := checkLoopback(append(gateways, o.before, "http://"+o.backend)); err != nil {
		return err
	}
	stop, err := serve(ctx, o.backend)
	if err != nil {
		return err
	}
	defer stop()

	schedule := plan(o.length)
	before, err := send(ctx, schedule, []string{o.before})
	if err != nil {
		return err
	}
	after, err := send(ctx, schedule, gateways)
	if err != nil {
		return err
	}
	results := report{before: before, after: after}
	fmt.Print(results.csv())
	return errors.Join(save(o.csv, results.csv()), save(o.svg, results.svg()))
}

// checkLoopback refuses addresses of other machines: this is a flood.
func checkLoopback(urls []string) error {
	for _, address := range urls {
		host, found := strings.CutPrefix(address, "http://")
		name, _, err := net.SplitHostPort(host)
		if !found || err != nil || name != "127.0.0.1" {
			return fmt.Errorf("%s: allowed are addresses of the form http://127.0.0.1:<port>", address)
		}
	}
	return nil
}

// serve starts the service, which can bear less than everybody asks.
func serve(ctx context.Context, address string) (stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	server := &http.Server{Handler: newBackend(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

func save(file, text string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}
