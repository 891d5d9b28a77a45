package ratelimit

import (
	"math"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// blankTenant names the bucket of all requests for which a zone's key is blank.
// No tenant's escaped name has a tilde in it.
const blankTenant = "~blank"

// maskKey returns the network of a key that is an IP address, with as many bits
// as its family's prefix says, written as CIDR. A key that is none, or whose
// family has no prefix (0), is returned as it is.
func maskKey(key string, ipv4, ipv6 int) string {
	if ipv4 == 0 && ipv6 == 0 {
		return key
	}
	address, err := netip.ParseAddr(key)
	if err != nil {
		return key
	}
	address = address.Unmap().WithZone("")
	bits := ipv6
	if address.Is4() {
		bits = ipv4
	}
	if bits == 0 {
		return key
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return key
	}
	return network.String()
}

// jittered adds to a wait up to the part jitter of it. random returns a number
// from 0 to below 1. A wait that is none, such as limit.Never, stays.
func jittered(wait time.Duration, jitter float64, random func() float64) time.Duration {
	if wait <= 0 || jitter <= 0 {
		return wait
	}
	longer := float64(wait) * (1 + jitter*random())
	if longer >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(wait, time.Duration(longer))
}

// remoteIP returns the address of the connection's other end without its port,
// as caddy-ratelimit tells it: a proxy in between is what it names.
func remoteIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
