package redisbucket

import (
	"errors"
	"fmt"

	"github.com/caddygate/ratelimit/limit"
)

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

// resetNames returns the keys that hold a bucket under every algorithm, in groups
// for one command each. In a cluster that is each by itself: a shard's names are
// in several slots, and those of a slot that moves may be in two places.
func resetNames(prefix string, key limit.Key, apart bool) (groups [][]string) {
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		name := keyText(prefix, key, algorithm)
		if apart || len(groups) == 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], name)
	}
	return groups
}
