package redisbucket

import "time"

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
