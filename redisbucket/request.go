package redisbucket

import (
	"errors"
	"fmt"

	"github.com/caddygate/ratelimit/limit"
)

// The script's arguments: one number of entries, three for each entry, four for
// each of its buckets.
const (
	argumentsPerCall   = 1
	argumentsPerEntry  = 3
	argumentsPerBucket = 4
)

// arguments builds the arguments of a command without allocating for each: the
// client takes pointers to strings and numbers, and these point into slices
// that are used again.
type arguments struct {
	list     []any
	texts    []string
	integers []int64
	refills  []float64
}

// encode makes a the call of the script for one request, whose script is named
// later by command. The layout is that of the header of take.lua.
func (a *arguments) encode(prefix string, req *limit.Request) {
	n := len(req.Buckets)
	a.reset(n)
	a.list = append(a.list, nil, nil) // EVALSHA and its digest, see command
	a.integer(int64(n))
	for i := range req.Buckets {
		bucket := &req.Buckets[i]
		a.text(keyText(prefix, bucket.Key, bucket.Rule.Algorithm))
	}
	a.integer(1)
	a.integer(int64(n))
	a.integer(req.Cost)
	a.integer(req.Count)
	for i := range req.Buckets {
		rule := &req.Buckets[i].Rule
		a.integer(int64(max(rule.Algorithm, limit.TokenBucket)))
		a.integer(rule.Capacity)
		a.refills = append(a.refills, rule.Refill)
		a.list = append(a.list, &a.refills[len(a.refills)-1])
		a.integer(rule.WindowMillis)
	}
}

// encodeReset makes a the command that forgets a bucket under every algorithm.
func (a *arguments) encodeReset(prefix string, key limit.Key) {
	a.reset(int(limit.SlidingWindowCounter))
	a.list = append(a.list, "del")
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		a.text(keyText(prefix, key, algorithm))
	}
}

// command names the script: by its digest, or as its whole text.
func (a *arguments) command(name, script any) []any {
	a.list[0], a.list[1] = name, script
	return a.list
}

// reset makes room for n buckets, so that no slice grows while others point
// into it.
func (a *arguments) reset(n int) {
	integers := 1 + argumentsPerCall + argumentsPerEntry + n*(argumentsPerBucket-1)
	if cap(a.integers) < integers || cap(a.texts) < n || cap(a.refills) < n {
		a.integers = make([]int64, 0, integers)
		a.texts = make([]string, 0, n)
		a.refills = make([]float64, 0, n)
		a.list = make([]any, 0, 2+integers+2*n)
	}
	clear(a.texts)
	a.list, a.texts, a.integers, a.refills = a.list[:0], a.texts[:0], a.integers[:0], a.refills[:0]
}

func (a *arguments) integer(n int64) {
	a.integers = append(a.integers, n)
	a.list = append(a.list, &a.integers[len(a.integers)-1])
}

func (a *arguments) text(s string) {
	a.texts = append(a.texts, s)
	a.list = append(a.list, &a.texts[len(a.texts)-1])
}

// checkRequest refuses what the script has no answer for.
func checkRequest(req *limit.Request) error {
	if len(req.Buckets) == 0 {
		return errors.New("taking from Redis: the request names no bucket")
	}
	if req.Cost < 1 || req.Count < 0 {
		return fmt.Errorf("taking from Redis: cost %d and count %d are out of bounds", req.Cost, req.Count)
	}
	return nil
}
