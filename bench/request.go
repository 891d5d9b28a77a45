package main

import (
	"context"
	"errors"
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

// crowd sends so many requests on many connections at once, number i as the tenant
// that is named for it, until one fails or judge errs. It returns that error.
func (g *gateway) crowd(ctx context.Context, count int, tenant func(i int) int, judge func(status int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := newClient(g.addrs[answerStatic])
	defer c.close()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range wrkConnections {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				status, err := c.send(ctx, tenant(i))
				if err == nil {
					err = judge(status)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// touch sends one request of each tenant, all of which must pass.
func (g *gateway) touch(ctx context.Context, tenants int) error {
	err := g.crowd(ctx, tenants, func(i int) int { return i }, func(status int) error {
		if status != http.StatusOK {
			return fmt.Errorf("the status was %d", status)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("sending a request of each tenant to %s: %w", g.name, err)
	}
	return nil
}

var errRefused = errors.New("refused")

// drain takes what a full bucket of the flood's tenant has, so that a measurement
// does not begin with it.
func (g *gateway) drain(ctx context.Context) error {
	err := g.crowd(ctx, 20*floodRate, func(int) int { return 0 }, func(status int) error {
		if status == http.StatusTooManyRequests {
			return errRefused
		}
		return nil
	})
	switch {
	case errors.Is(err, errRefused):
		return nil
	case err == nil:
		err = errors.New("it refuses nobody")
	}
	return fmt.Errorf("emptying the bucket of %s: %w", g.name, err)
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
	client := newClient(g.addrs[answerStatic])
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
