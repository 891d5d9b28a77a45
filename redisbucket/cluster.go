package redisbucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/caddygate/ratelimit/limit"
)

// findInCluster asks any server of the cluster which master serves which slots.
// The first answer that covers all slots counts, else the one that covers most:
// a server that was just reset knows of no other.
func (c *Client) findInCluster(ctx context.Context) ([]master, error) {
	var best []master
	var errs []error
	inquiry[[]master]{from: c.askable(), pause: inquiryPause, ask: c.askSlots, enough: func(a said[[]master]) bool {
		if a.err != nil {
			errs = append(errs, a.err)
			return false
		}
		if covered(a.value) > covered(best) {
			best = a.value
		}
		return covered(best) == slotCount
	}}.make(ctx)
	switch {
	case best != nil:
		return best, nil
	case len(errs) == 0:
		return nil, errNoSlots
	}
	return nil, mostTelling(errs)
}

// askable lists whom to ask: masters that answer, then the seeds, then the rest.
func (c *Client) askable() []address {
	var well, ill []address
	if v := c.view.Load(); v != nil {
		for _, n := range v.nodes {
			if n.troubled() {
				ill = append(ill, n.address)
			} else {
				well = append(well, n.address)
			}
		}
	}
	isIll := func(a address) bool { return slices.Contains(ill, a) }
	var list []address
	for _, endpoint := range slices.Concat(well, slices.DeleteFunc(slices.Clone(c.seeds), isIll), ill) {
		if !slices.Contains(list, endpoint) {
			list = append(list, endpoint)
		}
	}
	return list
}

func (c *Client) askSlots(ctx context.Context, endpoint address) ([]master, error) {
	reply, err := c.inquire(ctx, endpoint, "cluster", "slots")
	if err != nil {
		if clusterDisabled(err) || unknownCommand(err) {
			return nil, fmt.Errorf("%w: %w", errNoCluster, err)
		}
		return nil, err
	}
	return readSlots(reply, endpoint.host)
}

// readSlots reads the reply to CLUSTER SLOTS of the server at host, by which it
// means itself where it names none.
func readSlots(reply any, host string) ([]master, error) {
	rows, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: CLUSTER SLOTS is no list", errReply)
	}
	masters := make([]master, 0, 8)
	for _, row := range rows {
		name, span, err := readSlotRow(row, host)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(masters, func(m master) bool { return m.host == name })
		if at < 0 {
			at = len(masters)
			masters = append(masters, master{host: name})
		}
		masters[at].slots = append(masters[at].slots, span)
	}
	return masters, nil
}

// readSlotRow reads one row: first slot, last slot, the master, its replicas.
func readSlotRow(row any, host string) (name string, span slotRange, err error) {
	bad := fmt.Errorf("%w: a row of CLUSTER SLOTS has not the form that it must have", errReply)
	fields, _ := row.([]any)
	if len(fields) < 3 {
		return "", span, bad
	}
	first, ok1 := fields[0].(int64)
	last, ok2 := fields[1].(int64)
	server, _ := fields[2].([]any)
	if !ok1 || !ok2 || first < 0 || last < first || last >= slotCount || len(server) < 2 {
		return "", span, bad
	}
	port, ok := server[1].(int64)
	if !ok || port < 1 || port > 65535 {
		return "", span, bad
	}
	endpoint, _ := server[0].(string) // nil where it does not know
	if endpoint == unnamed {
		endpoint = addressIn(server)
	}
	return hostNear(host, endpoint, strconv.FormatInt(port, 10)), slotRange{uint16(first), uint16(last)}, nil
}

// unnamed stands for the name of a server that has none, where names are preferred
// (cluster-preferred-endpoint-type hostname).
const unnamed = "?"

// addressIn returns the address that stands beside a server's name, "" where none
// does: a server is a name, a port, an ID, and a list of more names and values.
func addressIn(server []any) string {
	if len(server) < 4 {
		return ""
	}
	more, _ := server[3].([]any)
	for i := 0; i+1 < len(more); i += 2 {
		if more[i] == "ip" {
			ip, _ := more[i+1].(string)
			return ip
		}
	}
	return ""
}

// hostNear returns host and port of a server that another one names. One that
// does not know the other's name leaves it out: it is its own.
func hostNear(asked, host, port string) string {
	if host == "" || host == unnamed {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

// takeBySlot has a waiter decided by the master of its keys' slot. Where that
// says that another one serves it, nothing was taken, and that one is asked, once.
func (c *Client) takeBySlot(ctx context.Context, v *view, w *waiter) (limit.Decision, error) {
	if !w.findSlot() {
		if len(w.prices) > 0 {
			return c.answer(w, errPricedApart)
		}
		return c.takeApart(ctx, w)
	}
	n := v.at(w.slot)
	if n == nil {
		return c.answer(w, errUnserved)
	}
	decision, err := n.take(ctx, w)
	moved := redirectIn(err)
	if moved == nil {
		return decision, err
	}
	c.doubt()
	if n = c.redirectedTo(moved.host); n != nil && !moved.ask {
		c.relocate(w.slot, n)
	}
	if n == nil || ctx.Err() != nil {
		c.waiters.Put(w)
		return limit.Decision{}, err
	}
	w.stage, w.asking = stageQueued, moved.ask
	decision, err = n.take(ctx, w)
	if redirectIn(err) != nil {
		c.waiters.Put(w)
	}
	return decision, err
}

// clusterDisabled reports whether a server replied that it is no cluster's.
func clusterDisabled(err error) bool {
	const text = "ERR This instance has cluster support disabled"
	var reply redis.Error
	return errors.As(err, &reply) && reply.Error() == text
}

// fragment is the part of a request whose keys are in one slot.
type fragment struct {
	slot     uint16
	at       []int // the numbers of the request's buckets
	decision limit.Decision
	err      error
}

// takeApart has a waiter decided whose keys are in several slots, by no matter how
// many servers, so that no single call can take from all or none. It looks at all
// of them, and takes only where each can give, from the one with the least first:
// that is where others come in between. It stops at the first that refuses; what
// was taken until then is lost, so that there is never more than the limit. Keys that
// are asked apart need no look: each slot's are asked by themselves.
//
// Of a directive's routes all keys have the tenant's tag, and so one slot. Only zones
// with keys of their own get here. They are not refused in a cluster, because a zone
// for everybody beside one for each client is what such configurations are written
// for; and they can have no prices.
func (c *Client) takeApart(ctx context.Context, w *waiter) (limit.Decision, error) {
	defer c.waiters.Put(w)
	fragments := w.fragments()
	if w.apart {
		if err := c.askAll(ctx, w, fragments, w.count); err != nil {
			return limit.Decision{}, err
		}
		return eachBySlot(w, fragments), nil
	}
	if err := c.askAll(ctx, w, fragments, 0); err != nil {
		return limit.Decision{}, err
	}
	count := w.count
	for _, f := range fragments {
		count = min(count, f.available(w.cost))
	}
	inOrder(fragments, w.cost)
	for _, f := range fragments {
		if count == 0 {
			break
		}
		if c.ask(ctx, w, f, count); f.err != nil {
			return limit.Decision{}, f.err
		}
		count = f.decision.Granted
	}
	return together(fragments, count), nil
}

// askAll asks for all fragments at once, and returns the first's error that nobody
// decided.
func (c *Client) askAll(ctx context.Context, w *waiter, fragments []*fragment, count int64) error {
	var wait sync.WaitGroup
	for _, f := range fragments {
		wait.Go(func() { c.ask(ctx, w, f, count) })
	}
	wait.Wait()
	if at := slices.IndexFunc(fragments, func(f *fragment) bool { return f.err != nil }); at >= 0 {
		return fragments[at].err
	}
	return nil
}

// ask asks for a fragment of what w asks for.
func (c *Client) ask(ctx context.Context, w *waiter, f *fragment, count int64) {
	part := c.waiters.Get().(*waiter)
	part.names, part.keys, part.rules = part.names[:0], part.keys[:0], part.rules[:0]
	for _, i := range f.at {
		part.add(w.keys[i], w.rules[i])
	}
	part.apart = w.apart && len(f.at) > 1
	part.renew(w.cost, count)
	part.arrived, part.latest, part.deadline = w.arrived, w.latest, w.deadline
	v, err := c.ready(ctx, part.deadline)
	if err != nil {
		f.decision, f.err = c.answer(part, err)
		return
	}
	f.decision, f.err = c.takeBySlot(ctx, v, part)
}

// fragments sorts what a waiter asks for by slot.
func (w *waiter) fragments() (list []*fragment) {
	bySlot := make(map[uint16]*fragment, len(w.keys))
	for i := range w.keys {
		slot := slotOf(w.keys[i])
		f := bySlot[slot]
		if f == nil {
			f = &fragment{slot: slot}
			bySlot[slot] = f
			list = append(list, f)
		}
		f.at = append(f.at, i)
	}
	return list
}

// inOrder sorts fragments by how much there is, and those that have about as much by
// their slot: requests that want the same then meet at the same one first, where who
// comes too late has lost nothing yet. In an order of their own each, most of what
// they take would be lost to all of them.
func inOrder(fragments []*fragment, cost int64) {
	magnitude := func(f *fragment) int { return bits.Len64(uint64(f.available(cost))) }
	slices.SortFunc(fragments, func(x, y *fragment) int {
		return cmp.Or(cmp.Compare(magnitude(x), magnitude(y)), cmp.Compare(x.slot, y.slot))
	})
}

// available is how many units of cost the fragment can give, as it was looked at.
func (f *fragment) available(cost int64) int64 {
	units := int64(math.MaxInt64)
	for k := range f.at {
		state := f.decision.At(k)
		of := state.Remaining / cost
		if of == 0 && state.RetryAfter == 0 {
			of = 1 // it is there but for the rounding
		}
		units = min(units, of)
	}
	return units
}

// together returns the decision of all fragments, in the order of the request.
func together(fragments []*fragment, granted int64) limit.Decision {
	buckets := 0
	for _, f := range fragments {
		buckets += len(f.at)
	}
	decision := limit.Decision{Granted: granted, Source: limit.SourceRedis, Rest: make([]limit.State, buckets-1)}
	for _, f := range fragments {
		for k, i := range f.at {
			if i == 0 {
				decision.First = f.decision.At(k)
			} else {
				decision.Rest[i-1] = f.decision.At(k)
			}
		}
	}
	return decision
}

// eachBySlot returns the decision on keys that were asked apart, in the order of the
// request.
func eachBySlot(w *waiter, fragments []*fragment) limit.Decision {
	decision := limit.NewApart(len(w.keys))
	for _, f := range fragments {
		for k, i := range f.at {
			decision.Put(i, f.decision.Part(k))
		}
	}
	return decision
}
