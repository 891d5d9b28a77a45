// Command load sends what tenants send: each at a rate of its own, to all gateways
// in turn, until it is stopped. It talks to 127.0.0.1 only. See docs/incident.md.
//
//	load -gateways http://127.0.0.1:8081,http://127.0.0.1:8082 shop-a=15 shop-b=150
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	gateways := flag.String("gateways", "http://127.0.0.1:8080", "the gateways, with commas between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, strings.Split(*gateways, ","), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		stop()
		os.Exit(1)
	}
}

// maxRate bounds what one tenant sends: this is a test, not a flood.
const maxRate = 1000

// run sends for all tenants until ctx ends.
func run(ctx context.Context, gateways, tenants []string) error {
	for _, gateway := range gateways {
		if address, err := url.Parse(gateway); err != nil || address.Scheme != "http" || address.Hostname() != "127.0.0.1" {
			return fmt.Errorf("%s: allowed are addresses of the form http://127.0.0.1:<port>", gateway)
		}
	}
	rates, err := parse(tenants)
	if err != nil {
		return err
	}
	var together sync.WaitGroup
	for tenant, rate := range rates {
		together.Go(func() { send(ctx, gateways, tenant, rate) })
	}
	together.Wait()
	return nil
}

// parse reads tenants with their requests a second.
func parse(tenants []string) (map[string]int, error) {
	rates := map[string]int{}
	for _, text := range tenants {
		tenant, digits, found := strings.Cut(text, "=")
		rate, err := strconv.Atoi(digits)
		if !found || tenant == "" || err != nil || rate < 1 || rate > maxRate {
			return nil, fmt.Errorf("%q: allowed is <tenant>=<requests a second>, from 1 to %d", text, maxRate)
		}
		rates[tenant] = rate
	}
	return rates, nil
}

// send asks the gateways in turn, and does not wait for answers.
func send(ctx context.Context, gateways []string, tenant string, rate int) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	var together sync.WaitGroup
	defer together.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			together.Go(func() { ask(ctx, client, gateways[i%len(gateways)], tenant) })
		}
	}
}

// ask sends one request. What is answered is the gateways' to count.
func ask(ctx context.Context, client *http.Client, gateway, tenant string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+"/", http.NoBody)
	if err != nil {
		return
	}
	req.Header.Set("X-Api-Key", tenant)
	if res, err := client.Do(req); err == nil {
		_ = res.Body.Close()
	}
}
