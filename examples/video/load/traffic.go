package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// class is who sends, of whom the results tell apart.
type class int

const (
	users class = iota
	guests
	eagerLists
	eagerSearches
	scrapers
	classes = int(scrapers) + 1
)

// String returns what tables and plots call the class.
func (c class) String() string {
	return [classes]string{"users", "guests", "eager users' lists", "eager users' searches", "scrapers"}[c]
}

// shot is one request to come.
type shot struct {
	at      time.Duration // after the start
	class   class
	path    string
	key     string
	address string
}

// habit is what one client asks for, and how often.
type habit struct {
	class     class
	path      string
	perSecond float64
}

// maxShots bounds a run, whatever the habits say.
const maxShots = 20_000

// plan returns all requests of a run, the same ones each time. Each client sends
// at an even pace from a moment of its own on.
func plan(length time.Duration) []shot {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same traffic each time is what is wanted
	var shots []shot
	add := func(client shot, habits ...habit) {
		for _, h := range habits {
			pace := time.Duration(float64(time.Second) / h.perSecond)
			for at := time.Duration(random.Int64N(int64(pace))); at < length; at += pace {
				next := client
				next.at, next.class, next.path = at, h.class, h.path
				if next.class == scrapers && random.IntN(2) == 0 {
					next.key = fmt.Sprintf("made-up-%d", random.Int64())
				}
				shots = append(shots, next)
			}
		}
	}
	for n := 1; n <= 18; n++ {
		add(shot{key: fmt.Sprintf("key-%d", n), address: fmt.Sprintf("203.0.113.%d", n)},
			habit{users, "/trending", 0.5}, habit{users, "/videos", 1}, habit{users, "/search", 0.1})
	}
	for n := 19; n <= 20; n++ {
		add(shot{key: fmt.Sprintf("key-%d", n), address: fmt.Sprintf("203.0.113.%d", n)},
			habit{eagerLists, "/videos", 8}, habit{eagerSearches, "/search", 5})
	}
	for n := 1; n <= 20; n++ {
		add(shot{address: fmt.Sprintf("198.51.100.%d", n)}, habit{guests, "/trending", 0.3}, habit{guests, "/videos", 0.5})
	}
	for n := 1; n <= 4; n++ {
		add(shot{address: fmt.Sprintf("192.0.2.%d", n)}, habit{scrapers, "/trending", 75})
	}
	slices.SortStableFunc(shots, func(a, b shot) int { return cmp.Compare(a.at, b.at) })
	return shots[:min(len(shots), maxShots)]
}

// send fires the requests at their times, at the gateways in turn, and counts the
// answers. Nobody waits for an answer before sending the next request.
func send(ctx context.Context, shots []shot, gateways []string) (*tally, error) {
	client := &http.Client{
		Timeout:   3 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 500, MaxConnsPerHost: 500},
	}
	defer client.CloseIdleConnections()
	var (
		results tally
		all     sync.WaitGroup
	)
	defer all.Wait()
	start := time.Now()
	for i, next := range shots {
		select {
		case <-time.After(time.Until(start.Add(next.at))):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		all.Go(func() { results.note(next.class, fire(ctx, client, gateways[i%len(gateways)], next)) })
	}
	all.Wait()
	if results.served() == 0 {
		return nil, errors.New("no request was served: do the gateways run?")
	}
	return &results, nil
}

// answer is what came of one request: status 0 where nothing came.
type answer struct {
	status int
	took   time.Duration
}

// fire sends one request as the balancer before the gateways does, which tells
// them the client's address.
func fire(ctx context.Context, client *http.Client, gateway string, s shot) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, gateway+s.path, nil)
	if err != nil {
		return answer{}
	}
	request.Header.Set("X-Forwarded-For", s.address)
	if s.key != "" {
		request.Header.Set("X-Api-Key", s.key)
	}
	began := time.Now()
	response, err := client.Do(request)
	if err != nil {
		return answer{}
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return answer{status: response.StatusCode, took: time.Since(began)}
}
