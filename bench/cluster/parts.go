package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// measureParts runs the benchmarks of the parts.
func (r *report) measureParts() error {
	rounds, seconds := "15x", "5x"
	if r.quick {
		rounds, seconds = "5x", "1x"
	}
	r.parts = figures{}
	for _, b := range []goBench{
		{"redisbucket", "^BenchmarkScript$", rounds},
		{"redisbucket", "^BenchmarkClient$/^(64|512)_callers$", rounds},
		{"redisbucket", "^BenchmarkLatency$", seconds},
		{"redisbucket", "^BenchmarkMemory$/^token_bucket$", "100000x"},
		{"localbucket", "^BenchmarkTake$/^keys=100000$", "2000000x"},
		{"rulecache", "^BenchmarkSnapshotHeap$/^100000$", "1x"},
	} {
		found, err := b.run(r.root)
		if err != nil {
			return err
		}
		maps.Copy(r.parts, found)
	}
	turns := 15
	if r.quick {
		turns = 5
	}
	found, err := measureSecondBucket(turns)
	if err != nil {
		return err
	}
	maps.Copy(r.parts, found)
	return nil
}

// addedDelay is what the proxy adds to a round trip, as PING sees it.
type addedDelay struct {
	wanted, p50, p99 time.Duration
	together         time.Duration // the p50 where 32 ask at once
}

// addedDelays measures the proxy, so that the results tell of the limiter and not
// of it.
func addedDelays() ([]addedDelay, error) {
	server, err := startRedis()
	if err != nil {
		return nil, err
	}
	defer server.close()
	var all []addedDelay
	for _, wanted := range []time.Duration{0, 500 * time.Microsecond, time.Millisecond} {
		p, err := startProxy(server.addr, wanted)
		if err != nil {
			return nil, err
		}
		added, err := pingThrough(p.addr, wanted)
		p.close()
		if err != nil {
			return nil, err
		}
		fmt.Printf("proxy  +%-6v PING p50 %v  p99 %v, 32 at once p50 %v\n", wanted, added.p50, added.p99, added.together)
		all = append(all, added)
	}
	return all, nil
}

func pingThrough(addr string, wanted time.Duration) (addedDelay, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, PoolSize: 32, DisableIdentity: true})
	defer client.Close()
	alone, err := pings(client, 1, 500)
	if err != nil {
		return addedDelay{}, err
	}
	together, err := pings(client, 32, 50)
	if err != nil {
		return addedDelay{}, err
	}
	return addedDelay{wanted, alone[len(alone)/2], alone[len(alone)*99/100], together[len(together)/2]}, nil
}

// pings returns what each of so many PINGs by so many callers took, sorted.
func pings(client *redis.Client, callers, each int) ([]time.Duration, error) {
	type answer struct {
		took time.Duration
		err  error
	}
	answers := make(chan answer, callers*each)
	for range callers {
		go func() {
			for range each {
				began := time.Now()
				err := client.Ping(context.Background()).Err()
				answers <- answer{time.Since(began), err}
			}
		}()
	}
	took := make([]time.Duration, 0, callers*each)
	for range callers * each {
		a := <-answers
		if a.err != nil {
			return nil, fmt.Errorf("asking through the delaying proxy: %w", a.err)
		}
		took = append(took, a.took)
	}
	slices.Sort(took)
	return took, nil
}
