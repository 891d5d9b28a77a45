package ratelimit

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
)

// blankTenant names the bucket of all requests for which a zone's key is blank,
// in keys and in rules. No tenant's escaped name has a tilde in it.
const blankTenant = "~blank"

// visitor returns whom a zone with a key of its own limits. An error means that
// the request is ambiguous.
func (z *zone) visitor(r *http.Request, repl *caddy.Replacer) (visitor, error) {
	key, err := z.key.of(r, repl)
	if err != nil {
		return visitor{}, err
	}
	if key == "" {
		return visitor{shown: blankTenant, key: blankTenant, rules: blankTenant}, nil
	}
	return tenantVisitor(maskKey(key, z.ipv4Prefix, z.ipv6Prefix)), nil
}

// maskKey returns the network of a key that is an IP address, with as many bits
// as its family's prefix says, written as CIDR. A key that is none, or whose
// family has no prefix (0), is returned as it is.
func maskKey(key string, ipv4, ipv6 int) string {
	if ipv4 == 0 && ipv6 == 0 {
		return key
	}
	network, ok := networkOf(key, ipv4, ipv6)
	if !ok || network.Bits() == 0 {
		return key
	}
	return network.String()
}
