package redisbucket

import (
	"errors"
	"strconv"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

// part is what one call of the script asks for, and then its answer: all entries
// of a batch or, in a cluster, those of one slot.
type part struct {
	entries []entry
	buckets int
	asking  bool          // a redirect sent it here
	pending bool          // it is to be asked
	at      int           // the number of its reply in the exchange
	states  []limit.State // of every bucket of every entry, in order
	err     error         // why it was not decided
}

// fill makes the part one of these entries, whose first tells the slot.
func (p *part) fill(entries []entry) {
	p.entries, p.buckets, p.asking, p.pending, p.err = entries, 0, entries[0].first.asking, true, nil
	for i := range entries {
		p.buckets += int(entries[i].keys)
	}
}

// reset drops what the part points to.
func (p *part) reset() {
	p.entries, p.states, p.err = nil, p.states[:0], nil
}

// integers is how many numbers its reply has.
func (p *part) integers() int { return len(p.entries) + 3*p.buckets }

// appendTo appends the call of the script, by its digest or as its whole text.
func (p *part) appendTo(out []byte, script *lua.Script, whole bool) []byte {
	keys := 0
	for i := range p.entries {
		keys += len(p.entries[i].first.keys)
	}
	out = appendHead(out, 3+keys+len(p.entries))
	if whole {
		out = appendWord(appendWord(out, "EVAL"), script.Text)
	} else {
		out = appendWord(appendWord(out, "EVALSHA"), script.SHA1)
	}
	var digits [20]byte
	out = appendWord(out, strconv.AppendInt(digits[:0], int64(keys), 10))
	for i := range p.entries {
		w := p.entries[i].first
		for k := range w.keys {
			out = appendWord(out, w.keys[k])
		}
	}
	for i := range p.entries {
		out = appendEntry(out, &p.entries[i])
	}
	return out
}

// settle reads the reply, nil where the exchange failed before it came.
func (p *part) settle(reply []byte, failed error, n *node) {
	err := failed
	if reply != nil && !errors.Is(failed, errReply) {
		err = p.decode(reply)
	}
	if err != nil {
		err = n.redirected(err)
	}
	p.err, p.pending = err, false
}

// share gives every waiter its answer, or the error that it failed with.
func (p *part) share() {
	if p.err != nil {
		for i := range p.entries {
			p.entries[i].each(func(w *waiter) { w.err = p.err })
		}
		return
	}
	states := p.states
	for i := range p.entries {
		e := &p.entries[i]
		e.share(states[:e.keys])
		states = states[e.keys:]
	}
}

// verdict is how a call of several parts ended, for the breaker and the
// connection. One that broke the connection tells most, then one that counts;
// what says nothing about the server counts only where nothing else was said.
func verdict(parts []part) error {
	var counts, nothing error
	decided := false
	for i := range parts {
		switch err := parts[i].err; {
		case err == nil:
			decided = true
		case !fromRedis(err):
			return err
		case saysNothing(err):
			nothing = err
		default:
			counts = err
		}
	}
	if counts != nil || decided {
		return counts
	}
	return nothing
}
