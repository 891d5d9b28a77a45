// Package due sends requests at fixed times, whatever the answers take, and tells
// how long each took from when it was due. So what waits is seen: users do not ask
// more slowly because the gateway does.
//
// One thread sends, receives and sleeps. It sleeps on a timerfd, which is due to a
// few µs: the slack that Linux gives to the sleep of other calls does not concern
// it, and nothing spins. How late requests were sent all the same is measured.
package due

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Bounds of a load.
const (
	MaxPerSecond   = 200_000
	MaxLength      = time.Minute
	MaxTenants     = 1_000_000
	MaxConnections = 8192
)

// patience is how long answers may take after the last request.
const patience = 10 * time.Second

// Load is what is sent.
type Load struct {
	Addr        string        // the gateway's address and port
	Tenants     int           // each request is from one of so many, all alike
	PerSecond   float64       // requests that are due, at the same distance from each other
	Length      time.Duration // from the first that is due until no more are
	Connections int           // a request that is due while all are in use waits, and that counts
}

// Validate says what is out of bounds.
func (l Load) Validate() error {
	switch {
	case !validAddr(l.Addr):
		return fmt.Errorf("addr %q is none: give an IPv4 address and a port", l.Addr)
	case l.Tenants < 1 || l.Tenants > MaxTenants:
		return fmt.Errorf("%d tenants are out of bounds: allowed are 1 to %d", l.Tenants, MaxTenants)
	case !(l.PerSecond >= 1 && l.PerSecond <= MaxPerSecond):
		return fmt.Errorf("%v a second are out of bounds: allowed are 1 to %d", l.PerSecond, MaxPerSecond)
	case l.Length <= 0 || l.Length > MaxLength:
		return fmt.Errorf("the length %v is out of bounds: allowed are up to %v", l.Length, MaxLength)
	case l.Connections < 1 || l.Connections > MaxConnections:
		return fmt.Errorf("%d connections are out of bounds: allowed are 1 to %d", l.Connections, MaxConnections)
	}
	return nil
}

func validAddr(text string) bool {
	addr, err := netip.ParseAddrPort(text)
	return err == nil && addr.Addr().Is4()
}

// total is how many requests are due.
func (l Load) total() int { return int(math.Ceil(l.PerSecond * l.Length.Seconds())) }

// at is when a request is due, from the beginning.
func (l Load) at(number int) time.Duration {
	return time.Duration(float64(number) / l.PerSecond * float64(time.Second))
}

// Report is what came of a load. Times are in nanoseconds.
type Report struct {
	Due      int           // requests
	Answered int           // of them
	Statuses int           // answers that were neither 2xx nor 3xx
	Broken   int           // requests without an answer, or with one that makes no sense
	Unsent   int           // requests for which no connection became free in time
	Took     time.Duration // from the first that was due to the last answer
	P50, P99 time.Duration // from when a request was due to its answer

	// How late requests were sent for which a connection was free: the error of
	// this generator.
	Late50, Late99 time.Duration

	CPU time.Duration // of this process
}

// errNothing is a load that nobody answered.
var errNothing = errors.New("no request was answered")

// quantile is the smallest value that such a part of all values does not exceed; 0
// of none. It sorts them.
func quantile(values []time.Duration, part float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(part * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}
