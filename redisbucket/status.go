package redisbucket

import (
	"sync"
	"sync/atomic"
	"time"
)

// Status is the state of a Redis at one moment: what its servers make together,
// and each of them. It holds no secret.
type Status struct {
	// Address is the Options.Identity, for one server "host:port/db".
	Address string

	// Breaker is closed, open, half-open, or off: of several servers, that of the
	// one that is worst off. It is open where nobody knows yet which servers
	// there are.
	Breaker string

	// Since is when that breaker entered its state; zero before the first change.
	Since time.Time

	// Connections is how many are up now.
	Connections int

	// LastReason and LastFailure are the Reason and the time of the last failed
	// call or connection attempt; zero where there was none.
	LastReason  string
	LastFailure time.Time

	// LastWords is what Redis said of it itself, as in Event.
	LastWords string

	// Nodes are the servers that serve: the only one, the masters of a cluster, or
	// the master that sentinels name.
	Nodes []NodeStatus
}

// NodeStatus is the state of one server.
type NodeStatus struct {
	// Address is the server's, "host:port/db".
	Address string

	// Breaker is closed, open, half-open, or off.
	Breaker string

	// Since is when the breaker entered its state; zero before the first change.
	Since time.Time

	// Connections is how many are up now.
	Connections int

	// LastReason and LastFailure are the Reason and the time of the last failed
	// call or connection attempt; zero where there was none.
	LastReason  string
	LastFailure time.Time

	// LastWords is what Redis said of it itself, as in Event.
	LastWords string

	// Traffic is what the server was asked since it serves.
	Traffic Traffic
}

// Status returns the state of the breakers and the connections now.
func (c *Client) Status() Status {
	status := Status{Address: c.identity, Breaker: breakerOpen}
	for i, n := range c.serve() {
		s := n.status()
		status.Nodes = append(status.Nodes, s)
		status.Connections += s.Connections
		if i == 0 || badness(s.Breaker) > badness(status.Breaker) {
			status.Breaker, status.Since = s.Breaker, s.Since
		}
		if s.LastFailure.After(status.LastFailure) {
			status.LastReason, status.LastWords, status.LastFailure = s.LastReason, s.LastWords, s.LastFailure
		}
	}
	if lost := c.lost.Load(); lost != nil && lost.at.After(status.LastFailure) {
		status.LastReason, status.LastWords, status.LastFailure = Reason(lost.err), words(lost.err), lost.at
	}
	return status
}

// serve returns the nodes that serve now.
func (c *Client) serve() []*node {
	if c.sole != nil {
		return []*node{c.sole}
	}
	if v := c.view.Load(); v != nil {
		return v.nodes
	}
	return nil
}

// badness puts the states of breakers in order.
func badness(breaker string) int {
	switch breaker {
	case breakerOpen:
		return 2
	case breakerClosed, breakerOff:
		return 0
	default:
		return 1
	}
}

// Traffic counts what one server of Redis was asked since it serves.
type Traffic struct {
	// Entries is how many entries the answered script calls held. Requests that
	// ask for the same are one entry; a call holds 1 to 64.
	Entries uint64

	// Calls counts the answered script calls by how long their round trip took:
	// Calls[i] are those that took at most RoundTripBounds()[i], but longer than
	// the bound before; the last element is those beyond all bounds.
	Calls [RoundTrips]uint64

	// Seconds is how long all of those took together.
	Seconds float64
}

// RoundTrips is the number of classes that round trips are counted in.
const RoundTrips = 11

// RoundTripBounds returns the upper bounds of all classes of round trips but the
// last, which has none. They are close where decisions still wait.
func RoundTripBounds() [RoundTrips - 1]time.Duration {
	const us, ms = time.Microsecond, time.Millisecond
	return [...]time.Duration{100 * us, 250 * us, 500 * us, ms, 2 * ms, 3 * ms, 5 * ms, 10 * ms, 50 * ms, 250 * ms}
}

// traffic is what a Traffic is read from. Senders write it without a lock.
type traffic struct {
	entries atomic.Uint64
	calls   [RoundTrips]atomic.Uint64
	nanos   atomic.Int64
}

// note counts an answered script call.
func (t *traffic) note(entries int, took time.Duration) {
	class := RoundTrips - 1
	for i, bound := range RoundTripBounds() {
		if took <= bound {
			class = i
			break
		}
	}
	t.calls[class].Add(1)
	t.entries.Add(uint64(entries))
	t.nanos.Add(int64(took))
}

func (t *traffic) read() Traffic {
	read := Traffic{Entries: t.entries.Load(), Seconds: time.Duration(t.nanos.Load()).Seconds()}
	for i := range t.calls {
		read.Calls[i] = t.calls[i].Load()
	}
	return read
}

// EventKind says what changed at a Redis.
type EventKind uint8

// The kinds of events.
const (
	// BreakerOpened: calls failed, and Redis is not asked for a while. It is told
	// once, not again for each failed probe.
	BreakerOpened EventKind = iota + 1
	// BreakerClosed: Redis answers again.
	BreakerClosed
	// VersionTooOld: the server is older than Redis 6.2 and is not used.
	VersionTooOld
	// EvictingPolicy: the server's maxmemory-policy lets it evict buckets, which
	// refills them. It is told once of each server, at its first connection.
	EvictingPolicy
	// Unreached: no connection is up, and none could be made; or nobody could say
	// which servers there are. It is told once.
	Unreached
	// Reached: a connection could be made after that.
	Reached
	// ClusterNode: the only server is a node of a Redis Cluster and has not all keys,
	// so that it cannot decide alone. It is told once.
	ClusterNode
	// NoCluster: what should be a cluster is a single server. It is told once.
	NoCluster
	// SentinelServer: what should keep the buckets is a sentinel and is not used. It
	// is told once.
	SentinelServer
	// NoSentinel: what should be a sentinel is none. It is told once.
	NoSentinel
	// UnknownMaster: the sentinels know no master of the name that was given. It is
	// told once.
	UnknownMaster
	// MastersChanged: other servers serve now than before.
	MastersChanged
)

// String returns a short phrase for logs.
func (k EventKind) String() string {
	switch k {
	case BreakerOpened:
		return "redis breaker opened"
	case BreakerClosed:
		return "redis breaker closed"
	case VersionTooOld:
		return "redis version is too old: 6.2 or newer, or Valkey, is needed"
	case EvictingPolicy:
		return "redis may evict rate limits"
	case Unreached:
		return "redis cannot be reached"
	case Reached:
		return "redis can be reached again"
	case ClusterNode:
		return "redis is a node of a cluster: mode cluster is needed"
	case NoCluster:
		return "redis is no cluster: mode cluster does not fit"
	case SentinelServer:
		return "redis is a sentinel: mode sentinel is needed"
	case NoSentinel:
		return "redis is no sentinel: mode sentinel does not fit"
	case UnknownMaster:
		return "redis sentinels know no master of this name"
	case MastersChanged:
		return "redis has other masters"
	default:
		return ""
	}
}

// Event is a change of a Redis' state, for a log. It holds no secret.
type Event struct {
	// Kind says what happened.
	Kind EventKind

	// Address is the server's, "host:port/db", or the identity of all where the
	// event concerns no single one.
	Address string

	// Detail is the Reason of the last failure for BreakerOpened and Unreached, the
	// version for VersionTooOld, the policy for EvictingPolicy, and the hosts for
	// MastersChanged.
	Detail string

	// Words is what Redis said of that failure itself, one line without what it
	// quotes of arguments, 200 bytes at most; blank where it said nothing.
	Words string

	// At is when it happened.
	At time.Time
}

// eventQueue bounds how many events wait for their observers.
const eventQueue = 64

// observers are those who are told of events.
type observers struct {
	events chan Event

	watch sync.Mutex // held while they are told, so that none is after its stop
	all   map[*observer]struct{}
}

type observer struct{ observe func(Event) }

// notes are what was told already and is not told again until it has changed.
type notes struct {
	clusterTold  atomic.Bool   // that a server is a node of a cluster
	sentinelTold atomic.Bool   // that a server is a sentinel
	lostTold     atomic.Uint32 // the EventKind of why nobody knows who serves; 0 where somebody does
}

func newObservers() observers {
	return observers{events: make(chan Event, eventQueue), all: make(map[*observer]struct{})}
}

// tell queues an event for the observers; one too many is dropped.
func (o *observers) tell(event Event) {
	event.At = time.Now()
	select {
	case o.events <- event:
	default:
	}
}

func (o *observers) dispatch(event Event) {
	o.watch.Lock()
	defer o.watch.Unlock()
	for one := range o.all {
		one.observe(event)
	}
}

func (o *observers) watchWith(one *observer) {
	if one.observe == nil {
		return
	}
	o.watch.Lock()
	defer o.watch.Unlock()
	o.all[one] = struct{}{}
}

func (o *observers) forget(one *observer) {
	o.watch.Lock()
	defer o.watch.Unlock()
	delete(o.all, one)
}
