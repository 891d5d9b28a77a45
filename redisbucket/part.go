package redisbucket

import (
	"github.com/redis/go-redis/v9"

	"github.com/caddygate/ratelimit/limit"
)

// part is what one call of the script asks for, and then its answer: all entries
// of a batch or, in a cluster, those of one slot.
type part struct {
	entries []entry
	buckets int
	answers int   // numbers granted: an entry's, or one for each of its keys
	asking  bool  // a redirect sent it here
	list    []any // the command
	packed  packed
	sent    *redis.RawWriteToCmd
	reply   replyBuffer
	granted []int64       // every answer, in order
	states  []limit.State // of every bucket of every entry, in order
	err     error         // why it was not decided
}

// fill makes the part one of these entries, whose first tells the slot.
func (p *part) fill(entries []entry) {
	p.entries, p.buckets, p.answers, p.asking, p.err = entries, 0, 0, entries[0].first.asking, nil
	for i := range entries {
		p.buckets += int(entries[i].keys)
		p.answers += entries[i].first.answers()
	}
	p.reply.expect(p.answers, p.buckets)
}

// reset drops what the part points to.
func (p *part) reset() {
	clear(p.list)
	p.packed.reset()
	p.entries, p.list, p.granted, p.states, p.sent, p.err = nil, p.list[:0], p.granted[:0], p.states[:0], nil, nil
}

// encode makes the command, whose script is named later by command. The layout
// is that of the header of take.lua. The arguments are pointers into waiters and
// the part, because the client takes those without allocating.
func (p *part) encode() {
	list := append(p.list[:0], nil, nil, p.buckets)
	for i := range p.entries {
		w := p.entries[i].first
		for k := range w.keys {
			list = append(list, &w.keys[k])
		}
		p.packed.add(&p.entries[i])
	}
	for i := range p.packed.arguments {
		list = append(list, &p.packed.arguments[i])
	}
	p.list = list
}

// command names the script: by its digest, or as its whole text.
func (p *part) command(name, script any) []any {
	p.list[0], p.list[1] = name, script
	return p.list
}

// settle notes how the exchange ended and reads the reply.
func (p *part) settle(err error, n *node) {
	if err == nil {
		err = p.decode(p.reply.data)
	}
	if err != nil {
		err = n.redirected(err)
	}
	p.err = err
}

// share gives every waiter its answer, or the error that it failed with.
func (p *part) share() {
	if p.err != nil {
		for i := range p.entries {
			p.entries[i].each(func(w *waiter) { w.err = p.err })
		}
		return
	}
	granted, states := p.granted, p.states
	for i := range p.entries {
		e := &p.entries[i]
		answers := e.first.answers()
		e.share(granted[:answers], states[:e.keys])
		granted, states = granted[answers:], states[e.keys:]
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
