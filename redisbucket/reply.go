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

// decode reads the script's reply: exactly one integer for each of its entries, and
// three for each of their buckets. Anything else is an error of the whole call,
// because half an answer is none.
func (p *part) decode(data []byte) error {
	if err := errorIn(data); err != nil {
		return err
	}
	want := p.answers + 3*p.buckets
	length, rest, ok := number(data, '*')
	if !ok || length != int64(want) {
		return fmt.Errorf("%w: it is not a list of %d integers", errReply, want)
	}
	p.granted, p.states = p.granted[:0], p.states[:0]
	for i := range p.entries {
		var err error
		if rest, err = p.decodeEntry(&p.entries[i], rest); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: it goes on", errReply)
	}
	return nil
}

// decodeEntry reads what the reply says of an entry.
func (p *part) decodeEntry(e *entry, data []byte) (rest []byte, err error) {
	w := e.first
	for k := range w.rules {
		var ok bool
		if k%w.together() == 0 {
			var granted int64
			most := e.count
			if w.settling != nil {
				most = max(0, w.settling.More())
			}
			if granted, data, ok = number(data, ':'); !ok || granted < 0 || granted > most {
				return nil, fmt.Errorf("%w: the number granted is not from 0 to %d", errReply, most)
			}
			p.granted = append(p.granted, granted)
		}
		if len(w.prices) > 0 && w.prices[k].ban > 0 {
			if data, ok = decodeBan(&p.states[len(p.states)-1], data, w.settling != nil); !ok {
				return nil, fmt.Errorf("%w: the ban of bucket %d of an entry is out of bounds", errReply, k)
			}
			continue
		}
		var state limit.State
		if data, ok = decodeState(&state, data, w.rules[k].Capacity); !ok {
			return nil, fmt.Errorf("%w: the state of bucket %d of an entry is out of bounds", errReply, k)
		}
		p.states = append(p.states, state)
	}
	return data, nil
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

// decodeBan reads rest_ms, begun and reset_after_ms into the state of the bucket before
// it. A settlement tells only of a ban that it has begun.
func decodeBan(state *limit.State, data []byte, settles bool) (rest []byte, ok bool) {
	var values [3]int64
	for i := range values {
		if values[i], data, ok = number(data, ':'); !ok {
			return nil, false
		}
	}
	left, begun := values[0], values[1]
	if left < 0 || left > limit.MaxBan.Milliseconds() || begun < 0 || begun > 1 {
		return nil, false
	}
	if left > 0 && (!settles || begun == 1) {
		state.Banned = time.Duration(left) * time.Millisecond
		state.RetryAfter = max(state.RetryAfter, state.Banned)
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
