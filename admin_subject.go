package ratelimit

import (
	"regexp"
	"strings"

	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// sought is whom a query names, as one zone sees it.
type sought struct {
	visitor
	means standing
	note  string // what the operator may not expect
}

// The notes of explain.
const (
	noteGuest       = "a request without a tenant is a guest's: parameter ip names its bucket"
	noteMadeUp      = "the tenant has no rule of its own, so its requests are a guest's: parameter ip names the bucket"
	noteMadeUpGuest = "the tenant has no rule of its own, so its requests are a guest's"
	noteHashed      = "the handler knows tenants by their SHA-256: tenant was hashed; parameter stored takes the hash"
	noteZone        = "a zone's request may meet other zones of the handler, which are not looked at here"
)

// in returns whom the zone sees.
func (s *subject) in(h *Handler, z *zone, rules ruleSet) sought {
	switch {
	case z.key != nil:
		return sought{visitor: s.inZone(z), note: noteZone}
	case s.owned():
		return s.own(&h.identity, s.stored)
	case s.tenant == rulecache.Guest, s.tenant == "" && s.stored == "":
		return s.guest(&h.identity)
	}
	name, note := s.stored, ""
	if name == "" {
		if name = h.identity.name(s.tenant); h.identity.hashed {
			note = noteHashed
		}
	}
	v := tenantVisitor(name)
	v.Membership = rules.membership(v.rules)
	switch {
	case v.Blocked, h.identity.accepts(v, rules):
		return sought{visitor: v, note: note}
	case h.identity.unknown == unknownDeny:
		return sought{visitor: v, means: standingUnauthorized, note: note}
	}
	guest := s.guest(&h.identity)
	if guest.note = noteMadeUpGuest; guest.key == "" && guest.means == standingLimited {
		guest.note = noteMadeUp
	}
	return guest
}

// ownName is what the gateway's own names look like, in keys: no tenant's escaped
// name has a tilde in it.
var ownName = regexp.MustCompile(`^~(guest|blank|ip-unknown|(ip|sha256)-[0-9a-f]{64})$`)

// own is whom a name of the gateway's own stands for: a guest's hash, or the hash
// of a tenant that is too long for a key.
func (s *subject) own(id *identity, name string) sought {
	switch {
	case name == rulecache.Guest:
		return s.guest(id)
	case strings.HasPrefix(name, guestName):
		return sought{visitor: visitor{shown: name, key: name, rules: rulecache.Guest}}
	}
	return sought{visitor: visitor{shown: name, key: name}}
}

// guest is a request without a tenant. Without an address it has no bucket.
func (s *subject) guest(id *identity) sought {
	v := visitor{shown: rulecache.Guest, rules: rulecache.Guest}
	switch {
	case id.guest == guestAllow:
		return sought{visitor: v, means: standingFree}
	case id.guest != guestIP:
		return sought{visitor: v, means: standingUnauthorized}
	case s.address == "":
		return sought{visitor: v, note: noteGuest}
	}
	name := id.guests.name(s.address)
	return sought{visitor: visitor{shown: name, key: name, rules: rulecache.Guest}}
}

// inZone is whom a zone with a key of its own sees: the key's value is the tenant
// or, if there is none, the address.
func (s *subject) inZone(z *zone) visitor {
	value := s.stored
	switch {
	case !strings.Contains(z.key.template, "{"):
		value = strings.TrimSpace(z.key.template)
	case value == "" && s.tenant != "":
		value = s.tenant
	case value == "":
		value = s.address
	}
	switch {
	case value == "", value == blankTenant && s.owned():
		return visitor{shown: blankTenant, key: blankTenant, rules: blankTenant}
	case value == s.stored && s.owned():
		return visitor{shown: value, key: value}
	}
	return tenantVisitor(maskKey(value, z.ipv4Prefix, z.ipv6Prefix))
}

// keys returns the names of all buckets that the subject may have in the zone,
// whatever the rules say now.
func (s *subject) keys(h *Handler, z *zone) []limit.Key {
	var owners []string
	switch {
	case z.key != nil:
		owners = append(owners, s.inZone(z).key)
	case s.owned():
		owners = append(owners, s.own(&h.identity, s.stored).key)
	case s.stored != "":
		owners = append(owners, tenantVisitor(s.stored).key)
	default:
		if s.tenant != "" && s.tenant != rulecache.Guest {
			owners = append(owners, tenantVisitor(h.identity.name(s.tenant)).key)
		}
		if s.address != "" {
			owners = append(owners, s.guest(&h.identity).key)
		}
	}
	keys := make([]limit.Key, 0, len(owners))
	for _, owner := range owners {
		if owner != "" {
			keys = append(keys, limit.Key{Tenant: owner, Route: z.route})
		}
	}
	return keys
}
