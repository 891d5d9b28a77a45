package redisbucket

import (
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// maxReplyMillis is the longest wait that a reply may name: twice the longest
// window, which a sliding window counter needs to be empty again.
const maxReplyMillis = int64(2*limit.MaxWindow/time.Millisecond) + 10_000

// decode reads the script's reply to one request: exactly one integer, and three
// for each bucket. Anything else is an error, because half an answer is none.
func decode(reply any, req *limit.Request) (limit.Decision, error) {
	values, ok := reply.([]any)
	if !ok || len(values) != 1+3*len(req.Buckets) {
		return limit.Decision{}, fmt.Errorf("%w: it is not a list of %d integers", errReply, 1+3*len(req.Buckets))
	}
	granted, ok := values[0].(int64)
	if !ok || granted < 0 || granted > req.Count {
		return limit.Decision{}, fmt.Errorf("%w: the number granted is not from 0 to %d", errReply, req.Count)
	}
	decision := limit.Decision{Granted: granted, Source: limit.SourceRedis}
	if len(req.Buckets) > 1 {
		decision.Rest = make([]limit.State, len(req.Buckets)-1)
	}
	for i := range req.Buckets {
		state, ok := decodeState(values[1+3*i:], req.Buckets[i].Rule.Capacity)
		if !ok {
			return limit.Decision{}, fmt.Errorf("%w: the state of bucket %d is out of bounds", errReply, i)
		}
		if i == 0 {
			decision.First = state
		} else {
			decision.Rest[i-1] = state
		}
	}
	return decision, nil
}

// decodeState reads remaining, retry_after_ms and reset_after_ms.
func decodeState(values []any, capacity int64) (limit.State, bool) {
	remaining, ok1 := values[0].(int64)
	retry, ok2 := values[1].(int64)
	reset, ok3 := values[2].(int64)
	switch {
	case !ok1 || !ok2 || !ok3,
		remaining < 0 || remaining > capacity,
		retry < -1 || retry > maxReplyMillis,
		reset < 0 || reset > maxReplyMillis:
		return limit.State{}, false
	}
	state := limit.State{
		Remaining:  remaining,
		RetryAfter: time.Duration(retry) * time.Millisecond,
		ResetAfter: time.Duration(reset) * time.Millisecond,
	}
	if retry == -1 {
		state.RetryAfter = limit.Never
	}
	return state, true
}
