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

// resetCommand returns the command that forgets a bucket under every algorithm.
func resetCommand(prefix string, key limit.Key) []any {
	command := []any{"del"}
	for algorithm := limit.TokenBucket; algorithm <= limit.SlidingWindowCounter; algorithm++ {
		command = append(command, keyText(prefix, key, algorithm))
	}
	return command
}
