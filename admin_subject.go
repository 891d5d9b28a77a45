package ratelimit

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddygate/ratelimit/internal/adminapi"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/rulecache"
)

// subject is whose bucket of which route a query asks about, and the zones that the
// route has.
type subject struct {
	*adminapi.Subject
	zones []zoneOf
}

// zoneOf is a zone with its handler.
type zoneOf struct {
	handler *Handler
	zone    *zone
}

// subject reads whom and what a query asks about.
func (a *App) subject(q *adminapi.Query) (*subject, error) {
	named, err := q.Subject()
	if err != nil {
		return nil, badQuery(err)
	}
	s := &subject{named, a.zonesOf(named.Route)}
	if len(s.zones) == 0 && s.Route == "" {
		return nil, apiError(http.StatusBadRequest, "no handler has a route")
	}
	if len(s.zones) == 0 {
		return nil, apiError(http.StatusBadRequest, "parameter route: no handler has the route %.100q: allowed are %s%s", s.Route,
			strings.Join(a.routeNames(shownRoutes), ", "), limit.DidYouMean(s.Route, a.routeNames(mostRoutes)...))
	}
	return s, nil
}

// shownRoutes is how many routes an error lists.
const shownRoutes = 30

// zonesOf returns the zones of a route, which is a name or what keys have, or of all
// where it is blank.
func (a *App) zonesOf(route string) []zoneOf {
	var list []zoneOf
	for _, h := range a.handlers {
		for _, z := range h.zones {
			if route == "" || z.name == route || z.route == route {
				list = append(list, zoneOf{h, z})
			}
		}
	}
	return list
}

// routeNames returns the names of the routes of all handlers, most at most.
func (a *App) routeNames(most int) []string {
	var names []string
	for _, h := range a.handlers {
		for _, z := range h.zones {
			names = append(names, z.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if over := len(names) - most; over > 0 {
		names = append(names[:most], fmt.Sprintf("and %d others", over))
	}
	return names
}

// sought is whom a query names, as one zone sees it.
type sought struct {
	visitor
	means standing
	note  string // what the operator may not expect
}

// in returns whom the zone sees.
func (s *subject) in(h *Handler, z *zone, rules ruleSet) sought {
	switch {
	case z.key != nil:
		return sought{visitor: s.inZone(z), note: adminapi.NoteZone}
	case s.Owned():
		return s.own(&h.identity, s.Stored)
	case s.Tenant == rulecache.Guest, s.Tenant == "" && s.Stored == "":
		return s.guest(&h.identity)
	}
	name, note := s.Stored, ""
	if name == "" {
		if name = h.identity.name(s.Tenant); h.identity.hashed {
			note = adminapi.NoteHashed
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
	if guest.note = adminapi.NoteMadeUpGuest; guest.key == "" && guest.means == standingLimited {
		guest.note = adminapi.NoteMadeUp
	}
	return guest
}

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
	case s.Address == "":
		return sought{visitor: v, note: adminapi.NoteGuest}
	}
	name := id.guests.name(s.Address)
	return sought{visitor: visitor{shown: name, key: name, rules: rulecache.Guest}}
}

// inZone is whom a zone with a key of its own sees: the key's value is the tenant
// or, if there is none, the address.
func (s *subject) inZone(z *zone) visitor {
	value := s.Stored
	switch {
	case !strings.Contains(z.key.template, "{"):
		value = strings.TrimSpace(z.key.template)
	case value == "" && s.Tenant != "":
		value = s.Tenant
	case value == "":
		value = s.Address
	}
	switch {
	case value == "", value == blankTenant && s.Owned():
		return visitor{shown: blankTenant, key: blankTenant, rules: blankTenant}
	case value == s.Stored && s.Owned():
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
	case s.Owned():
		owners = append(owners, s.own(&h.identity, s.Stored).key)
	case s.Stored != "":
		owners = append(owners, tenantVisitor(s.Stored).key)
	default:
		if s.Tenant != "" && s.Tenant != rulecache.Guest {
			owners = append(owners, tenantVisitor(h.identity.name(s.Tenant)).key)
		}
		if s.Address != "" {
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
