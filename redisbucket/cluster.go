package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

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
