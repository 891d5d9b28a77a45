// Command due sends requests to a gateway at fixed times, and tells what came of
// them as a line of JSON. It is the benchmark's load generator beside wrk.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/caddygate/ratelimit/bench/due"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "due:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var l due.Load
	flag.StringVar(&l.Addr, "addr", "", "the gateway's address and port")
	flag.IntVar(&l.Tenants, "tenants", 1, "each request is from one of so many")
	flag.Float64Var(&l.PerSecond, "rate", 100, "requests that are due in a second")
	flag.DurationVar(&l.Length, "length", time.Second, "how long requests are due")
	flag.IntVar(&l.Connections, "connections", 64, "how many requests may be under way")
	flag.Parse()
	// It keeps little, and no collection is to delay a request.
	debug.SetGCPercent(-1)
	report, err := due.Run(ctx, l)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
