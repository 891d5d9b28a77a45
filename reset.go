package ratelimit

import "time"

// The words of the option reset.
const (
	resetDelta = "delta"
	resetEpoch = "epoch"
)

// resetValue returns the value of X-RateLimit-Reset for a bucket that is full
// again after a time: the seconds until then, or with epoch the Unix time of
// then by this gateway's clock. Either is rounded up, so that a client that
// waits for it finds the bucket full.
func resetValue(epoch bool, now time.Time, after time.Duration) int64 {
	after = max(0, after)
	if !epoch {
		return wholeSeconds(after)
	}
	full := now.Add(after)
	if full.Nanosecond() > 0 {
		return full.Unix() + 1
	}
	return full.Unix()
}
