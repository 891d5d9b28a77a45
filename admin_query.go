package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddygate/ratelimit/limit"
)

// adminQuery is the parameters of a request to the admin API, each once.
type adminQuery struct{ values url.Values }

// newAdminQuery reads a query that may have the parameters allowed. An error names
// the parameter and what is allowed.
func newAdminQuery(raw string, allowed []string) (*adminQuery, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, errors.New("the query cannot be read: write every byte of a value that is no letter or digit as %XX")
	}
	for name, all := range values {
		switch {
		case !slices.Contains(allowed, name) && len(allowed) == 0:
			return nil, fmt.Errorf("unknown parameter %.64q: none is allowed", name)
		case !slices.Contains(allowed, name):
			return nil, limit.UnknownWord("parameter", name, allowed...)
		case len(all) > 1:
			return nil, fmt.Errorf("parameter %s is there %d times: allowed is once", name, len(all))
		}
	}
	return &adminQuery{values}, nil
}

func (q *adminQuery) has(name string) bool { return q.values.Has(name) }

func (q *adminQuery) text(name string) string { return q.values.Get(name) }

// number reads a whole number from 1 to most, and returns fallback where the
// parameter is missing.
func (q *adminQuery) number(name string, fallback, most int64) (int64, error) {
	if !q.has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseInt(q.text(name), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, apiError(http.StatusBadRequest, "parameter %s: %.64q is not allowed: allowed is a whole number from 1 to %d", name, q.text(name), most)
	}
	return n, nil
}

// subject is whose bucket of which route a query asks about.
type subject struct {
	tenant  string // as clients send it
	stored  string // as rules have it, or a name of the gateway's own; then tenant and address are blank
	literal bool   // stored is a tenant's, whatever it looks like
	address string // of a guest, an IP address
	route   string
	zones   []zoneOf
}

// zoneOf is a zone with its handler.
type zoneOf struct {
	handler *Handler
	zone    *zone
}

// subject reads whom and what a query asks about.
func (q *adminQuery) subject(app *App) (*subject, error) {
	s := &subject{tenant: strings.TrimSpace(q.text("tenant")), stored: q.text("stored"), address: strings.TrimSpace(q.text("ip")), route: q.text("route")}
	err := q.checkSubject(s)
	if err == nil && q.has("key") {
		err = s.readKey(q.text("key"))
	}
	if err != nil {
		return nil, apiError(http.StatusBadRequest, "%w", err)
	}
	if s.zones = app.zonesOf(s.route); len(s.zones) == 0 {
		return nil, apiError(http.StatusBadRequest, "parameter route: no handler has the route %.100q: allowed are %s%s", s.route,
			strings.Join(app.routeNames(shownRoutes), ", "), limit.DidYouMean(s.route, app.routeNames(mostRoutes)...))
	}
	return s, nil
}

func (q *adminQuery) checkSubject(s *subject) error {
	switch {
	case s.route == "":
		return errors.New("parameter route is missing: name the route")
	case q.has("stored") && (q.has("tenant") || q.has("ip") || q.has("key")):
		return errors.New("parameter stored: not together with tenant, ip or key, because it names the bucket's owner already")
	case q.has("key") && (q.has("tenant") || q.has("ip")):
		return errors.New("parameter key: not together with tenant or ip, because it names the bucket's owner already")
	case q.has("stored") && s.stored == "":
		return errors.New("parameter stored is blank: allowed is a tenant as rules and keys have it")
	case !q.has("tenant") && !q.has("stored") && !q.has("key") && !q.has("ip"):
		return errors.New("nobody is named: allowed are tenant, as a client sends it; stored, as rules have it; key, as Redis keys have it; and ip, for a guest")
	case s.address == "" && q.has("ip"):
		return errors.New("parameter ip is blank: allowed is an IP address")
	case s.address == "":
		return nil
	}
	if _, err := netip.ParseAddr(s.address); err != nil {
		return fmt.Errorf("parameter ip: %.64q is no IP address", s.address)
	}
	return nil
}

// readKey reads a tenant as keys have it, escaped. That names also what no other
// parameter can: bytes that are no text, and what a client made look like a name of
// the gateway's own.
func (s *subject) readKey(key string) error {
	if ownName.MatchString(key) {
		s.stored = key
		return nil
	}
	tenant, err := url.PathUnescape(key)
	if err != nil || tenant == "" || limit.EscapeName(tenant) != key {
		return fmt.Errorf("parameter key: %.100q is none: allowed is what stands for the tenant in a Redis key, such as shop-a or a%%20b", key)
	}
	s.stored, s.literal = tenant, true
	return nil
}

// owned reports whether a name of the gateway's own was asked for.
func (s *subject) owned() bool { return !s.literal && ownName.MatchString(s.stored) }

// cost reads what the request that is asked about costs, 0 where the handler says.
func (q *adminQuery) cost() (int64, error) { return q.number("cost", 0, limit.MaxCapacity) }

// shownRoutes is how many routes an error lists.
const shownRoutes = 30

// zonesOf returns the zones of a route, which is a name or what keys have.
func (a *App) zonesOf(route string) []zoneOf {
	var list []zoneOf
	for _, h := range a.handlers {
		for _, z := range h.zones {
			if z.name == route || z.route == route {
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
