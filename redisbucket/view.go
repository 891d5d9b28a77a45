package redisbucket

import (
	"slices"
	"strings"
)

// view is who serves what at one moment. It is never changed: another one takes
// its place.
type view struct {
	nodes  []*node
	owners *[slotCount]uint16 // by slot: the number of a node and 1, or 0; nil where the only node serves all
	gaps   bool               // nobody serves some of the slots
}

// at returns who serves a slot, nil where nobody does.
func (v *view) at(slot uint16) *node {
	if v.owners == nil {
		return v.nodes[0]
	}
	if owner := v.owners[slot]; owner > 0 {
		return v.nodes[owner-1]
	}
	return nil
}

// relocate makes another node of the view the one that serves a slot, as an answer
// says, so that the next request goes there at once. The cluster is asked all the
// same: a node that nobody else has named may be none of it.
func (c *Client) relocate(slot uint16, to *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.view.Load()
	if c.life == nil || v == nil || v.owners == nil || v.at(slot) == to {
		return
	}
	at := slices.Index(v.nodes, to)
	if at < 0 {
		return
	}
	next := &view{nodes: v.nodes, owners: new([slotCount]uint16), gaps: v.gaps}
	*next.owners = *v.owners
	next.owners[slot] = uint16(at + 1)
	c.view.Store(next)
}

// hosts names the nodes, for a log and to tell views apart.
func (v *view) hosts() string {
	if v == nil {
		return ""
	}
	names := make([]string, len(v.nodes))
	for i, n := range v.nodes {
		names[i] = n.address.host
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// troubled reports whether one of the nodes does not answer, or nobody serves some
// of the slots: either may end at any moment, and nobody tells.
func (v *view) troubled() bool { return v.gaps || slices.ContainsFunc(v.nodes, (*node).troubled) }

// master is a server that was found, with what it serves.
type master struct {
	host  string
	slots []slotRange // nil where it serves all
}

// slotRange is the slots from first to last.
type slotRange struct{ first, last uint16 }

// newView returns the view of the masters, whose nodes come in the same order.
func newView(masters []master, nodes []*node) *view {
	v := &view{nodes: nodes}
	for i, m := range masters {
		if m.slots == nil {
			continue
		}
		if v.owners == nil {
			v.owners = new([slotCount]uint16)
		}
		for _, r := range m.slots {
			for slot := int(r.first); slot <= int(r.last); slot++ {
				v.owners[slot] = uint16(i + 1)
			}
		}
	}
	v.gaps = v.owners != nil && covered(masters) < slotCount
	return v
}

// covered is how many slots the masters serve.
func covered(masters []master) (slots int) {
	for _, m := range masters {
		for _, r := range m.slots {
			slots += int(r.last) - int(r.first) + 1
		}
	}
	return slots
}
