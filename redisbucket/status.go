package redisbucket

import "time"

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
