package redisbucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddygate/ratelimit/limit"
)

// Mode is what several addresses of a Redis are to each other.
type Mode string

// The modes.
const (
	// ModeCluster: the URLs are servers of one Redis Cluster, some or all of them.
	ModeCluster Mode = "cluster"
	// ModeSentinel: the URLs are sentinels, which name the master.
	ModeSentinel Mode = "sentinel"

	modeSingle Mode = ""
)

// maxMasterLength bounds the name of a master, in bytes.
const maxMasterLength = 256

// mode returns the Mode, or what the number of URLs makes of none.
func (o Options) mode() Mode {
	if o.Mode == modeSingle && len(o.URLs) > 1 {
		return ModeCluster
	}
	return o.Mode
}

// addresses reads the URLs. An error tells which one it is about, counted from 0
// as in the configuration, unless it is the only one.
func (o Options) addresses() ([]address, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("redis url is missing")
	}
	defaultPort := redisPort
	if o.mode() == ModeSentinel {
		defaultPort = sentinelPort
	}
	list := make([]address, len(o.URLs))
	for i, text := range o.URLs {
		var err error
		if list[i], err = parseURL(text, defaultPort); err != nil {
			if len(o.URLs) > 1 {
				return nil, fmt.Errorf("urls[%d]: %w", i, err)
			}
			return nil, err
		}
	}
	return list, nil
}

// checkTopology reports what does not fit together.
func (o Options) checkTopology(seeds []address) error {
	switch o.Mode {
	case modeSingle, ModeCluster, ModeSentinel:
	default:
		return fmt.Errorf("redis mode: %w", limit.UnknownWord("word", string(o.Mode), string(ModeCluster), string(ModeSentinel)))
	}
	if err := o.checkSentinel(); err != nil {
		return err
	}
	if o.mode() == modeSingle {
		return nil
	}
	for i, seed := range seeds {
		if err := o.checkSeed(seeds, i, seed); err != nil {
			return fmt.Errorf("urls[%d]: %w", i, err)
		}
	}
	return nil
}

// checkSentinel reports what is wrong with the settings for sentinels.
func (o Options) checkSentinel() error {
	const without = " is only for mode sentinel"
	switch {
	case o.Mode == ModeSentinel && o.Master == "":
		return errors.New("redis master: mode sentinel needs the name that the sentinels have for the master, such as mymaster")
	case o.Mode == ModeSentinel && (len(o.Master) > maxMasterLength || strings.ContainsFunc(o.Master, unprintable)):
		return fmt.Errorf("redis master: the name must have up to %d printable characters without spaces", maxMasterLength)
	case o.Mode == ModeSentinel && o.SentinelUser != "" && o.SentinelPassword == "":
		return errors.New("redis sentinel_password: a sentinel user needs one")
	case o.Mode == ModeSentinel:
		return nil
	case o.Master != "":
		return errors.New("redis master" + without)
	case o.SentinelUser != "":
		return errors.New("redis sentinel_username (in a Caddyfile sentinel_user)" + without)
	case o.SentinelPassword != "":
		return errors.New("redis sentinel_password" + without)
	}
	return nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// checkSeed reports what is wrong with one of several addresses.
func (o Options) checkSeed(seeds []address, i int, seed address) error {
	first := seeds[0]
	switch {
	case seed.network == "unix":
		return fmt.Errorf("redis url: mode %s needs host and port, not a unix socket", o.mode())
	case o.mode() == ModeCluster && seed.db != 0:
		return errors.New("redis url: a cluster has no databases but 0")
	case seed.user != first.user || seed.password != first.password:
		return errors.New("redis url: its user and password must be those of the first url")
	case seed.db != first.db:
		return errors.New("redis url: its database must be that of the first url")
	case seed.tls != first.tls || seed.skipVerify != first.skipVerify:
		return errors.New("redis url: its scheme and skip_verify must be those of the first url")
	}
	if j := slices.IndexFunc(seeds[:i], func(other address) bool { return other.host == seed.host }); j >= 0 {
		return fmt.Errorf("redis url: its host and port are those of urls[%d] already", j)
	}
	return nil
}

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

// redirect is the reply that another server decides: it serves the keys' slot, or
// (ask) will do so soon and has these keys already. Nothing was executed.
type redirect struct {
	host  string
	ask   bool
	reply error
}

// Error returns what Redis replied.
func (r *redirect) Error() string { return r.reply.Error() }

// Unwrap returns the reply.
func (r *redirect) Unwrap() error { return r.reply }

// redirectIn returns the redirect that err is, nil where it is none.
func redirectIn(err error) *redirect {
	var r *redirect
	if err == nil || !errors.As(err, &r) {
		return nil
	}
	return r
}

// redirected returns what a call on the node ended with as a redirect, where it is
// one. The only server there is cannot send anyone elsewhere.
func (n *node) redirected(err error) error {
	if n.client.sole != nil {
		return err
	}
	return followed(err, n.address.host)
}

// followed returns a reply of the server at asked as a redirect, where it is one:
// "MOVED 3999 10.0.0.7:6379" or "ASK 3999 10.0.0.7:6379". It is not followed to a
// server that has no name: only CLUSTER SLOTS tells the address then.
func followed(err error, asked string) error {
	class := replyClass(err)
	if class != "MOVED" && class != "ASK" {
		return err
	}
	fields := strings.Fields(err.Error())
	if len(fields) < 3 {
		return err
	}
	at := strings.LastIndexByte(fields[len(fields)-1], ':')
	if at < 0 {
		return err
	}
	// An IPv6 address comes without brackets.
	host, port := strings.Trim(fields[len(fields)-1][:at], "[]"), fields[len(fields)-1][at+1:]
	if !isPort(port) || host == unnamed {
		return err
	}
	return &redirect{host: hostNear(asked, host, port), ask: class == "ASK", reply: err}
}
