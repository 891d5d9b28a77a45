package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// client sends what wrk cannot: requests that are counted one by one.
type client struct {
	http *http.Client
	url  string
}

func newClient(addr string) client {
	return client{
		&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: wrkConnections}},
		"http://" + addr + "/",
	}
}

// send sends one request of that tenant, named as wrk names it, and returns the
// status.
func (c client) send(ctx context.Context, tenant int) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-Api-Key", "tenant-"+strconv.Itoa(tenant))
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// close ends the client's connections.
func (c client) close() { c.http.CloseIdleConnections() }

// touch sends one request of each tenant, all of which must pass.
func (g *gateway) touch(ctx context.Context, tenants int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newClient(g.addr)
	defer c.close()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range wrkConnections {
		wait.Go(func() {
			for tenant := int(next.Add(1)) - 1; tenant < tenants && ctx.Err() == nil; tenant = int(next.Add(1)) - 1 {
				switch status, err := c.send(ctx, tenant); {
				case err != nil:
					cancel(err)
				case status != http.StatusOK:
					cancel(fmt.Errorf("tenant %d got the status %d", tenant, status))
				}
			}
		})
	}
	wait.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("sending a request of each tenant to %s: %w", g.name, err)
	}
	return nil
}

// drain takes what a full bucket of the flood's tenant has, so that a measurement
// does not begin with it.
func (g *gateway) drain(ctx context.Context) error {
	c := newClient(g.addr)
	defer c.close()
	for range 10 * floodRate {
		status, err := c.send(ctx, 0)
		if err != nil {
			return fmt.Errorf("emptying the bucket of %s: %w", g.name, err)
		}
		if status == http.StatusTooManyRequests {
			return nil
		}
	}
	return fmt.Errorf("emptying the bucket of %s: it refuses nobody", g.name)
}

// watch sends a request now and then while wrk floods the gateway, which tells of
// a status only whether it is an error, and returns how many answers were neither
// 200 nor 429. Otherwise no error is expected at all, and wrk sees to that.
func (g *gateway) watch(ctx context.Context, c cell) (odd int64) {
	if !c.flood {
		return 0
	}
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	client := newClient(g.addr)
	defer client.close()
	for {
		select {
		case <-ctx.Done():
			return odd
		case <-every.C:
		}
		status, err := client.send(ctx, 0)
		switch {
		case ctx.Err() != nil:
			return odd
		case err != nil, status != http.StatusOK && status != http.StatusTooManyRequests:
			odd++
		}
	}
}
