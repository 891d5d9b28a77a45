package redisbucket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

const (
	// lateLook is how long is looked once more for an answer when the time is over:
	// where this process was late itself, it has come already.
	lateLook = 50 * time.Microsecond
	// readSize is how much is read at once, at least.
	readSize = 4 << 10
	// maxDepth bounds lists within lists in a reply.
	maxDepth = 8
)

// exchange sends commands and reads as many replies as are expected, until the
// deadline. What has come by then is used even where this process, late itself,
// notices only now.
func (l *lane) exchange(commands []byte, in *replies, deadline time.Time) error {
	if err := l.conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := l.conn.Write(commands); err != nil {
		return err
	}
	for late := false; !in.complete(); {
		err := in.readFrom(l)
		switch {
		case err == nil:
		case late || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		default:
			late = true
			if err := l.conn.SetReadDeadline(time.Now().Add(lateLook)); err != nil {
				return err
			}
		}
	}
	return nil
}

// replies are the replies to the commands of one exchange, as they come. They are
// bounded: no answer is longer, and a damaged one must not fill the memory.
type replies struct {
	data []byte
	ends []int // where the replies end that are whole
	want int
	most int // of bytes
}

// expect makes ready for so many replies, of so many bytes at most.
func (r *replies) expect(want, most int) {
	r.data, r.ends, r.want, r.most = r.data[:0], r.ends[:0], want, most
}

func (r *replies) complete() bool { return len(r.ends) >= r.want }

// reply returns reply number i, nil where it has not come whole.
func (r *replies) reply(i int) []byte {
	if i >= len(r.ends) {
		return nil
	}
	begin := 0
	if i > 0 {
		begin = r.ends[i-1]
	}
	return r.data[begin:r.ends[i]]
}

// readFrom reads once.
func (r *replies) readFrom(l *lane) error {
	if cap(r.data)-len(r.data) < readSize {
		r.data = append(make([]byte, 0, 2*cap(r.data)+readSize), r.data...)
	}
	n, err := l.conn.Read(r.data[len(r.data):cap(r.data)])
	r.data = r.data[:len(r.data)+n]
	if found := r.find(); found != nil {
		return found
	}
	if r.complete() {
		return nil
	}
	return err
}

// find notes the ends of the replies that have come whole.
func (r *replies) find() error {
	for begin := r.begin(); begin < len(r.data); begin = r.begin() {
		length, err := replyLength(r.data[begin:], 0)
		switch {
		case err != nil:
			return err
		case length == 0 && len(r.data) > r.most:
			return fmt.Errorf("%w: it is longer than %d bytes", errReply, r.most)
		case length == 0:
			return nil
		case r.complete():
			return fmt.Errorf("%w: it goes on", errReply)
		}
		r.ends = append(r.ends, begin+length)
	}
	return nil
}

// begin is where the reply begins that is not whole yet.
func (r *replies) begin() int {
	if len(r.ends) == 0 {
		return 0
	}
	return r.ends[len(r.ends)-1]
}

// replyLength returns how long the reply is that data begins with, in RESP2; 0
// where its end has not come yet.
func replyLength(data []byte, depth int) (int, error) {
	if len(data) > 0 && bytes.IndexByte([]byte("+-:$*"), data[0]) < 0 || depth > maxDepth {
		return 0, fmt.Errorf("%w: it is none of the protocol", errReply)
	}
	line := bytes.IndexByte(data, '\n') + 1
	if line == 0 || data[0] != '$' && data[0] != '*' {
		return line, nil
	}
	n, _, ok := number(data[:line], data[0])
	switch {
	case !ok || n < -1:
		return 0, fmt.Errorf("%w: a length is no number", errReply)
	case data[0] == '$' && n >= 0:
		if end := int64(line) + n + 2; end <= int64(len(data)) {
			return int(end), nil
		}
		return 0, nil
	}
	for length := line; n > 0; n-- {
		if length >= len(data) {
			return 0, nil
		}
		element, err := replyLength(data[length:], depth+1)
		if element == 0 {
			return 0, err
		}
		if length += element; n == 1 {
			return length, nil
		}
	}
	return line, nil
}

// valueOf returns a whole reply as int64, string, nil, a list of those, or an error.
func valueOf(data []byte) (any, error) {
	if err := errorIn(data); err != nil {
		return nil, err
	}
	line, rest, _ := bytes.Cut(data, []byte("\r\n"))
	if len(line) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errReply)
	}
	if line[0] == '+' {
		return string(line[1:]), nil
	}
	n, _, ok := number(data, line[0])
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: it is no number", errReply)
	case line[0] == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case line[0] == '$':
		return string(rest[:n]), nil
	}
	list := make([]any, 0, min(n, int64(len(rest))))
	for range n {
		length, err := replyLength(rest, 1)
		if err != nil {
			return nil, err
		}
		value, err := valueOf(rest[:length])
		if err != nil {
			return nil, err
		}
		list, rest = append(list, value), rest[length:]
	}
	return list, nil
}

// appendHead appends the beginning of a command of so many words.
func appendHead(out []byte, words int) []byte { return appendLength(out, '*', words) }

// appendWord appends one word of a command.
func appendWord[T string | []byte](out []byte, word T) []byte {
	out = appendLength(out, '$', len(word))
	out = append(out, word...)
	return append(out, "\r\n"...)
}

func appendLength(out []byte, kind byte, n int) []byte {
	out = append(out, kind)
	out = strconv.AppendInt(out, int64(n), 10)
	return append(out, "\r\n"...)
}

// appendCommand appends a command of words.
func appendCommand(out []byte, words ...string) []byte {
	out = appendHead(out, len(words))
	for _, word := range words {
		out = appendWord(out, word)
	}
	return out
}

// appendEntry appends what the script is told of an entry, as one word or, where its
// keys are asked apart, as one for each of them.
func appendEntry(out []byte, e *entry) []byte {
	w := e.first
	for k := 0; k < len(w.rules); k += w.together() {
		if len(w.prices) > 0 {
			out = appendPriced(out, e, k, k+w.together())
		} else {
			out = appendRules(out, e, w.rules[k:k+w.together()])
		}
	}
	return out
}

// appendPriced appends the word about keys that do not all cost the same, or have bans.
func appendPriced(out []byte, e *entry, from, to int) []byte {
	w := e.first
	out = appendLength(out, '$', 8*(3+5*(to-from)+max(0, w.renewed()-1)))
	out = appendNumbers(out, -float64(to-from), float64(w.cost), float64(e.count))
	for k := from; k < to; k++ {
		rule, p := &w.rules[k], &w.prices[k]
		if p.ban > 0 {
			settled := 0.0
			if p.settled {
				settled = 1
			}
			out = appendNumbers(out, banKind, float64(p.ban.Milliseconds()), settled, float64(p.unit), float64(p.cost))
			continue
		}
		if rule.Algorithm == limit.Concurrency {
			out = w.appendPlaces(out, rule, p)
			continue
		}
		algorithm := max(rule.Algorithm, limit.TokenBucket)
		out = appendNumbers(out, float64(algorithm), float64(rule.Capacity), rule.Refill, float64(rule.WindowMillis), float64(p.cost))
	}
	return append(out, "\r\n"...)
}

// appendPlaces appends what the script is told of a key of places: the numbers of all
// that are renewed, or of one.
func (w *waiter) appendPlaces(out []byte, rule *limit.Rule, p *price) []byte {
	numbers := []int64{p.place.Number}
	if w.renewed() > 0 {
		numbers = w.settling.Renewed
	}
	out = appendNumbers(out, float64(limit.Concurrency), float64(rule.Capacity), float64(p.place.Process), float64(numbers[0]), float64(p.cost))
	for _, n := range numbers[1:] {
		out = appendNumbers(out, float64(n))
	}
	return out
}

// renewed is how many places the entry renews.
func (w *waiter) renewed() int {
	if w.settling == nil {
		return 0
	}
	return len(w.settling.Renewed)
}

// banKind is the number of a ban's key in the script's protocol.
const banKind = 6

// appendRules appends the word about keys that the script decides together, in the
// layout of the header of take.lua.
func appendRules(out []byte, e *entry, rules []limit.Rule) []byte {
	out = appendLength(out, '$', 8*(3+4*len(rules)))
	out = appendNumbers(out, float64(len(rules)), float64(e.first.cost), float64(e.count))
	for k := range rules {
		rule := &rules[k]
		algorithm := max(rule.Algorithm, limit.TokenBucket)
		out = appendNumbers(out, float64(algorithm), float64(rule.Capacity), rule.Refill, float64(rule.WindowMillis))
	}
	return append(out, "\r\n"...)
}

func appendNumbers(out []byte, numbers ...float64) []byte {
	for _, number := range numbers {
		out = binary.LittleEndian.AppendUint64(out, math.Float64bits(number))
	}
	return out
}
