package redisbucket

import (
	"bytes"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// maxReplyMillis is the longest wait that a reply may name: twice the longest
	// window, which a sliding window counter needs to be empty again.
	maxReplyMillis = int64(2*limit.MaxWindow/time.Millisecond) + 10_000

	// replyBase and replyPerNumber bound a reply's length in bytes: an error's
	// text, and a number with what stands around it.
	replyBase      = 4 << 10
	replyPerNumber = 24
)

// replyError is an error that Redis replied.
type replyError string

// Error returns the text as Redis sent it, without the leading "-".
func (e replyError) Error() string { return string(e) }

// RedisError marks the error as a reply.
func (e replyError) RedisError() {}

// errorIn returns the error that a reply is, nil where it is none.
func errorIn(data []byte) error {
	if text, found := bytes.CutPrefix(data, []byte("-")); found {
		return replyError(bytes.TrimSuffix(text, []byte("\r\n")))
	}
	return nil
}

// decode reads the script's reply: exactly one integer for each entry, and three
// for each of its buckets. Anything else is an error of the whole call, because
// half an answer is none.
func (p *part) decode(data []byte) error {
	if err := errorIn(data); err != nil {
		return err
	}
	want := len(p.entries) + 3*p.buckets
	length, rest, ok := number(data, '*')
	if !ok || length != int64(want) {
		return fmt.Errorf("%w: it is not a list of %d integers", errReply, want)
	}
	p.states = p.states[:0]
	for i := range p.entries {
		e := &p.entries[i]
		if e.granted, rest, ok = number(rest, ':'); !ok || e.granted < 0 || e.granted > e.count {
			return fmt.Errorf("%w: the number granted is not from 0 to %d", errReply, e.count)
		}
		for k := range e.first.rules {
			var state limit.State
			if rest, ok = decodeState(&state, rest, e.first.rules[k].Capacity); !ok {
				return fmt.Errorf("%w: the state of bucket %d of entry %d is out of bounds", errReply, k, i)
			}
			p.states = append(p.states, state)
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: it goes on", errReply)
	}
	return nil
}

// decodeState reads remaining, retry_after_ms and reset_after_ms into state.
func decodeState(state *limit.State, data []byte, capacity int64) (rest []byte, ok bool) {
	var values [3]int64
	for i := range values {
		if values[i], data, ok = number(data, ':'); !ok {
			return nil, false
		}
	}
	remaining, retry, reset := values[0], values[1], values[2]
	if remaining < 0 || remaining > capacity || retry < -1 || max(retry, reset) > maxReplyMillis || reset < 0 {
		return nil, false
	}
	state.Remaining = remaining
	state.RetryAfter = time.Duration(retry) * time.Millisecond
	state.ResetAfter = time.Duration(reset) * time.Millisecond
	if retry == -1 {
		state.RetryAfter = limit.Never
	}
	return data, true
}

// maxDigits of a number fit into an int64, whatever they are.
const maxDigits = 18

// number reads a line that is kind and a whole number, of at most maxDigits.
func number(data []byte, kind byte) (n int64, rest []byte, ok bool) {
	if len(data) < 4 || data[0] != kind {
		return 0, nil, false
	}
	at, negative := 1, data[1] == '-'
	if negative {
		at++
	}
	begin := at
	for ; at < len(data) && data[at] >= '0' && data[at] <= '9'; at++ {
		n = 10*n + int64(data[at]-'0')
	}
	digits := at - begin
	if digits == 0 || digits > maxDigits || len(data) < at+2 || data[at] != '\r' || data[at+1] != '\n' {
		return 0, nil, false
	}
	if negative {
		n = -n
	}
	return n, data[at+2:], true
}

// Interface guards.
var _ redis.Error = replyError("")
