package redisbucket

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/lua"
)

const (
	// maxWeight bounds what one call of the script is to do: about a millisecond of
	// Redis, which answers nobody else meanwhile. An entry may weigh more alone.
	maxWeight = 200
	// maxAnswered is how many callers one call answers at most: many may share an
	// entry.
	maxAnswered = 1024
	// indexSize is a power of two that leaves half of the index empty.
	indexSize = 512
)

// weigh returns what an entry of these rules weighs, in about 5 µs of Redis: a
// token bucket 1, a counter 2, a log 3, and a log as much again for each two tokens
// that it adds: half of perUnit for each unit of cost.
func weigh(rules []limit.Rule) (fixed, perUnit int64) {
	for i := range rules {
		switch rules[i].Algorithm {
		case limit.SlidingWindowLog:
			fixed, perUnit = fixed+3, perUnit+1
		case limit.SlidingWindowCounter, limit.Concurrency:
			fixed += 2
		default:
			fixed++
		}
	}
	return fixed, perUnit
}

// batch is what one call of the script asks for, and then its answer. It is used
// again.
type batch struct {
	entries []entry
	index   [indexSize]uint8 // by a waiter's hash: the number of an entry and 1, or 0
	waiters int
	weight  int64
	mixed   bool   // not all entries can share a call of the script
	parts   []part // what is sent
}

// entry is one entry of the script's call: a waiter, or several that each ask for
// one unit of the same.
type entry struct {
	chain // who asks
	keys  int64
	count int64
}

// reset makes the batch empty.
func (b *batch) reset() {
	for i := range b.parts {
		b.parts[i].reset()
	}
	clear(b.entries)
	clear(b.index[:])
	b.entries, b.parts, b.waiters, b.weight, b.mixed = b.entries[:0], b.parts[:0], 0, 0, false
}

// add takes a waiter in: to those that ask for the same, if there are any. One
// that takes tokens ahead, only looks, or takes a place of its own, stays alone.
func (b *batch) add(w *waiter) {
	b.waiters++
	if w.count == 1 && !w.placed() && b.join(w) {
		return
	}
	b.weight += w.weight()
	b.mixed = b.mixed || len(b.entries) > 0 && b.entries[0].first.place() != w.place()
	b.entries = append(b.entries, entry{keys: int64(len(w.keys)), count: w.count})
	b.entries[len(b.entries)-1].append(w)
}

// join adds a waiter to an entry. Where there is none for it, the entry to come
// is entered in the index.
func (b *batch) join(w *waiter) bool {
	at := w.hash % indexSize
	for ; b.index[at] != 0; at = (at + 1) % indexSize {
		if e := &b.entries[b.index[at]-1]; e.first.same(w) {
			e.append(w)
			e.count++
			_, perUnit := weigh(w.rules)
			b.weight += (perUnit*w.cost + 1) / 2
			return true
		}
	}
	b.index[at] = uint8(len(b.entries) + 1)
	return false
}

// split returns the parts that are sent: one, or in a cluster one for each slot.
// Entries of one slot stay in their order.
func (b *batch) split() []part {
	if !b.mixed {
		b.nextPart().fill(b.entries)
		return b.parts
	}
	slices.SortStableFunc(b.entries, func(x, y entry) int { return cmp.Compare(x.first.place(), y.first.place()) })
	for first := 0; first < len(b.entries); {
		next := first + 1
		for next < len(b.entries) && b.entries[next].first.place() == b.entries[first].first.place() {
			next++
		}
		b.nextPart().fill(b.entries[first:next])
		first = next
	}
	return b.parts
}

// nextPart adds a part, with the memory of one that was used before.
func (b *batch) nextPart() *part {
	if len(b.parts) < cap(b.parts) {
		b.parts = b.parts[:len(b.parts)+1]
	} else {
		b.parts = append(b.parts, part{})
	}
	return &b.parts[len(b.parts)-1]
}

// each calls visit with every waiter, the oldest of an entry first. What visit
// does to the waiter may end its use here.
func (b *batch) each(visit func(*waiter)) {
	for i := range b.entries {
		b.entries[i].each(visit)
	}
}

// deliver gives every waiter its answer, or the error that kept the call from being
// made.
func (b *batch) deliver(err error) {
	if err != nil {
		b.each(func(w *waiter) { w.err = err })
		return
	}
	for i := range b.parts {
		b.parts[i].deliver()
	}
}

// deliver answers the waiters of an entry as if they had been asked one after
// another at one instant: the oldest are granted, and see more remaining. Granted
// is what was given of all keys or, where they were asked apart, of each.
func (e *entry) deliver(granted []int64, states []limit.State) {
	for w := e.first; w != nil; w = w.next {
		if w.apart {
			w.decision = limit.NewApart(len(states))
			for k := range states {
				w.decision.Put(k, w.decide(e, &granted[k], states[k:k+1]))
			}
		} else {
			w.decision = w.decide(e, &granted[0], states)
		}
	}
}

// decide returns the answer, with what is left after those who are still to come:
// the states are those after the call. A waiter alone has all that was granted, and
// else one unit.
func (w *waiter) decide(e *entry, granted *int64, states []limit.State) limit.Decision {
	own := *granted
	if e.first != e.last {
		own = min(own, 1)
	}
	*granted -= own
	decision := limit.Decision{Granted: own, Source: limit.SourceRedis, First: w.before(states[0], *granted*w.costOf(0))}
	if len(states) > 1 {
		decision.Rest = make([]limit.State, len(states)-1)
	}
	for i := range decision.Rest {
		decision.Rest[i] = w.before(states[i+1], *granted*w.costOf(i+1))
	}
	return decision
}

// before is a state before others took later tokens.
func (w *waiter) before(state limit.State, later int64) limit.State {
	if later > 0 {
		state.Remaining += later
		state.RetryAfter = 0 // what later ones got was there for this one's next unit
	}
	return state
}

// part is what one call of the script asks for, and then its answer: all entries
// of a batch or, in a cluster, those of one slot.
type part struct {
	entries []entry
	buckets int
	answers int           // numbers granted: an entry's, or one for each of its keys
	asking  bool          // a redirect sent it here
	pending bool          // it is to be asked
	at      int           // the number of its reply in the exchange
	granted []int64       // every answer, in order
	states  []limit.State // of every bucket of every entry, in order
	err     error         // why it was not decided
}

// fill makes the part one of these entries, whose first tells the slot.
func (p *part) fill(entries []entry) {
	p.entries, p.buckets, p.answers, p.asking, p.pending, p.err = entries, 0, 0, entries[0].first.asking, true, nil
	for i := range entries {
		p.buckets += int(entries[i].keys)
		p.answers += entries[i].first.answers()
	}
}

// reset drops what the part points to.
func (p *part) reset() {
	p.entries, p.granted, p.states, p.err = nil, p.granted[:0], p.states[:0], nil
}

// integers is how many numbers its reply has.
func (p *part) integers() int { return p.answers + 3*p.buckets }

// appendTo appends the call of the script, by its digest or as its whole text.
func (p *part) appendTo(out []byte, script *lua.Script, whole bool) []byte {
	out = appendHead(out, 3+p.buckets+p.answers)
	if whole {
		out = appendWord(appendWord(out, "EVAL"), script.Text)
	} else {
		out = appendWord(appendWord(out, "EVALSHA"), script.SHA1)
	}
	var digits [20]byte
	out = appendWord(out, strconv.AppendInt(digits[:0], int64(p.buckets), 10))
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

// deliver gives every waiter its answer, or the error that it failed with.
func (p *part) deliver() {
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
		buckets := e.first.buckets()
		e.deliver(granted[:answers], states[:buckets])
		granted, states = granted[answers:], states[buckets:]
	}
}

// outcome is how a call of several parts ended, for the breaker and the
// connection. One that broke the connection tells most, then one that counts;
// what says nothing about the server counts only where nothing else was said.
func outcome(parts []part) error {
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
