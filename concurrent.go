package ratelimit

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/limit"
)

// Concurrent bounds how many requests of a tenant run on a route at one time, over all
// gateways. A request runs until its answer is complete or, where the connection was
// taken over as for a WebSocket, until that is closed.
type Concurrent struct {
	// The route that it is for. Default: each of the handler that has none of its own.
	Route string `json:"route,omitempty"`

	// How many requests run at most, from 1 to 10,000. Required.
	Limit int64 `json:"limit,omitempty"`
}

// parseConcurrent reads `concurrent <n> [on <route>]`.
func (h *Handler) parseConcurrent(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 && (len(args) != 3 || args[1] != "on") {
		return d.Err("concurrent needs a number of requests, and takes `on <route>` behind it")
	}
	n, err := parsePlaces(args[0])
	if err != nil {
		return d.WrapErr(err)
	}
	c := Concurrent{Limit: n}
	if len(args) == 3 {
		if c.Route = args[2]; !slices.Contains(h.routes(), c.Route) {
			return d.WrapErr(h.unknownRoute(c.Route))
		}
	}
	for _, other := range h.Concurrent {
		if other.Route == c.Route {
			return d.Err("the option concurrent is given twice for the same route")
		}
	}
	h.Concurrent = append(h.Concurrent, c)
	return nil
}

// parsePlaces reads how many requests may run at once.
func parsePlaces(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("concurrent: %q is not a whole number: allowed are 1 to %d", block.Clipped(text), limit.MaxPlaces)
	}
	_, err = limit.NewPlaces(n)
	return n, err
}

// placesOf returns how many requests on a route may run at once; 0: any number.
func (h *Handler) placesOf(route string) (int64, error) {
	var found int64
	named := map[string]bool{}
	for i, c := range h.Concurrent {
		if _, err := limit.NewPlaces(c.Limit); err != nil {
			return 0, fmt.Errorf("concurrent[%d].limit: %w", i, err)
		}
		if c.Route != "" && !slices.Contains(h.routes(), c.Route) {
			return 0, fmt.Errorf("concurrent[%d].route: %q is not a route of the handler, which has %s", i, block.Clipped(c.Route), strings.Join(h.routes(), ", "))
		}
		if named[c.Route] {
			return 0, fmt.Errorf("concurrent[%d]: another one is for the same route", i)
		}
		named[c.Route] = true
		if c.Route == route || c.Route == "" && !named[route] {
			found = c.Limit
		}
	}
	return found, nil
}

// checkConcurrent returns why what the handler asks for does not go together.
func (h *Handler) checkConcurrent() error {
	switch {
	case len(h.Concurrent) == 0:
		return nil
	case len(h.RateLimits) > 0:
		return errors.New("concurrent: not together with zones")
	case h.Prefetch != "" && h.Prefetch != "0" || h.Shards > 1:
		return errors.New("concurrent: it does not go together with prefetch or shards, because a place is taken with the token, in one call")
	case h.app.Rules != nil || len(h.app.StaticRules) > 0 || slices.ContainsFunc(h.zones, func(z *zone) bool { return z.fallback.Capacity > 0 }):
		return nil
	case len(h.Charge) > 0 || h.Ban != nil || h.Cost != "" || len(h.Costs) > 0:
		return errors.New("charge, ban and cost: they are for the tokens of a bucket, and with `concurrent` alone there is none: give the directive a `limit`, too")
	}
	return nil
}

// places returns the charge for running, where the visitor's rule bounds how many requests
// run at once.
func (s *ruleSet) places(z *zone, who *visitor, rule limit.Rule) (c charge, bounded bool) {
	if rule.Concurrent == 0 {
		return charge{}, false
	}
	places, _ := limit.NewPlaces(rule.Concurrent) // within bounds, as every rule
	places.Mode = rule.Mode
	c = s.charge(z, limit.Key{Tenant: who.key, Route: z.route}, who.shown, places)
	c.bucket.Cost, c.beside = 1, rule.Capacity > 0
	return c, true
}

// isPlace reports whether the charge is for running, and not for tokens.
func (c *charge) isPlace() bool { return c.bucket.OfPlaces() }

// quiet reports whether the charge is of a place, whose zone also has a bucket that tells
// more.
func (c *charge) quiet() bool {
	return c.beside && c.outcome != outcomeRefused && c.outcome != outcomeShadow
}

// otherTells reports whether another charge of the same zone tells more: a place tells
// where it alone refuses.
func (h *Handler) otherTells(charges []charge, i int) bool {
	if c := &charges[i]; c.beside {
		return c.quiet() || charges[i-1].outcome == outcomeRefused
	}
	return i+1 < len(charges) && charges[i+1].beside && !charges[i+1].quiet() && charges[i].outcome != outcomeRefused
}

// nextPlace returns a name for a place that nobody had before.
func (m *memory) nextPlace() limit.Place {
	return limit.Place{Process: m.process, Number: m.places.Add(1)}
}

// newProcess returns the number of a process among all that share a Redis.
func newProcess() int64 { return 1 + rand.Int64N(1<<52) } //nolint:gosec // it is a name, and no secret

// fullHere refuses the request where this gateway alone runs as many of the tenant's
// requests as may run at all: that needs no question.
func (h *Handler) fullHere(charges []charge) bool {
	for i := range charges {
		c := &charges[i]
		if !c.isPlace() || !c.enforced() {
			continue
		}
		if held := int64(h.app.memory.local.Running(c.bucket.Key)); held >= c.bucket.Rule.Capacity {
			c.outcome, c.source, c.state = outcomeRefused, limit.SourceRemembered, limit.StateOfPlaces(&c.bucket.Rule, held)
			if h.app.client == nil {
				c.source = limit.SourceLocal
			}
			return true
		}
	}
	return false
}

// holding is the places that a request holds while it runs: until its handler has
// returned and, where the connection was taken over, that is closed.
type holding struct {
	caddyhttp.ResponseWriterWrapper
	app   *App
	held  []limit.Bucket
	users atomic.Int32 // the handler, and connections that were taken over
}

// enter notes which places the request has, and returns what gives them back; nil where
// it has none. A place in a shadow's bucket is entered above the limit.
func (a *App) enter(charges []charge) *holding {
	var held []limit.Bucket
	for i := range charges {
		c := &charges[i]
		if !c.isPlace() {
			continue
		}
		a.memory.local.Enter(c.bucket.Key, c.bucket.Place.Number)
		if c.outcome == outcomeShadow {
			a.renew(c.bucket.Key, []int64{c.bucket.Place.Number})
		}
		held = append(held, c.bucket)
	}
	if held == nil {
		return nil
	}
	h := &holding{app: a, held: held}
	h.users.Store(1)
	return h
}

// done is called once by each user. The last one's end gives the places back.
func (h *holding) done() {
	if h.users.Add(-1) > 0 {
		return
	}
	for i := range h.held {
		h.app.memory.local.Leave(h.held[i].Key, h.held[i].Place.Number)
		h.app.giveBack(h.held[i], time.Now().Add(limit.PlaceLease))
	}
}

// Hijack hands the connection over, which holds the places until it is closed.
func (h *holding) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.users.Add(1)
	return &heldConn{Conn: conn, closed: sync.OnceFunc(h.done)}, buffered, nil
}

// heldConn is a connection that holds places until it is closed.
type heldConn struct {
	net.Conn
	closed func()
}

// Close closes the connection and gives its places back.
func (c *heldConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// CloseWrite ends what is sent, where the connection can do that by itself.
func (c *heldConn) CloseWrite() error {
	if half, found := c.Conn.(interface{ CloseWrite() error }); found {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// giveBack gives a place back in Redis by its name, whether or not an answer has told
// that it was taken there. What is lost on the way is sent again until nobody would have
// the place any more.
func (a *App) giveBack(b limit.Bucket, until time.Time) {
	if a.client == nil {
		return
	}
	memory := a.memory
	a.limiter.Settle(limit.Settlement{
		Bucket: b, Source: limit.SourceRedis, Taken: 1, Granted: time.Now(),
		Ended: func(with limit.Settled) {
			if with.Lost != "" {
				memory.departures.add(b, until)
			}
		},
	})
}

// giveBackUnknown gives back what a request may have taken in Redis that does not run:
// its answer has not come, and another limiter has decided, or its client has left.
func (a *App) giveBackUnknown(charges []charge, left bool) {
	for i := range charges {
		if c := &charges[i]; c.isPlace() && (left || c.decidedWithoutRedis()) {
			a.giveBack(c.bucket, time.Now().Add(limit.PlaceLease))
		}
	}
}

// decidedWithoutRedis reports whether another limiter has decided than Redis, which may
// have been asked. Where nothing was decided, nobody was asked.
func (c *charge) decidedWithoutRedis() bool {
	return c.source == limit.SourceLocal || c.source == limit.SourceNone && c.outcome != outcomeUndecided
}

// departures are places that could not be given back yet, bounded: whoever is left out is
// free 15 s later.
type departures struct {
	mu   sync.Mutex
	list []departure
}

type departure struct {
	bucket limit.Bucket
	until  time.Time
}

// maxDepartures bounds the places that are given back again.
const maxDepartures = 4096

func (l *departures) add(b limit.Bucket, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) < maxDepartures && time.Now().Before(until) {
		b.Key.Tenant = strings.Clone(b.Key.Tenant) // what is kept of a request pins none of its headers
		l.list = append(l.list, departure{b, until})
	}
}

func (l *departures) take() []departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

const (
	// renewInterval is how often a gateway says which requests run: a third of a lease.
	renewInterval = limit.PlaceLease / 3
	// leaveInterval is how often places are given back again that could not be.
	leaveInterval = time.Second
	// maxRenewed is how many places one call renews.
	maxRenewed = 100
)

// watchPlaces keeps the places of requests that run, until stop.
func (a *App) watchPlaces() (stop func()) {
	renewal := background.Every(renewInterval, func() { a.memory.local.EachRunning(a.renew) })
	again := background.Every(leaveInterval, func() {
		for _, l := range a.memory.departures.take() {
			a.giveBack(l.bucket, l.until)
		}
	})
	return func() {
		renewal()
		again()
	}
}

// renew says in Redis which requests run in a bucket of places: those that it does not
// know are entered, also above the limit.
func (a *App) renew(key limit.Key, numbers []int64) {
	if a.client == nil {
		return
	}
	rule, _ := limit.NewPlaces(limit.MaxPlaces)
	for some := range slices.Chunk(numbers, maxRenewed) {
		a.limiter.Settle(limit.Settlement{
			Bucket:  limit.Bucket{Key: key, Rule: rule, Cost: 1, Place: limit.Place{Process: a.memory.process, Number: some[0]}},
			Source:  limit.SourceRedis,
			Renewed: some, Granted: time.Now(),
		})
	}
}

// Interface guards
var (
	_ http.ResponseWriter = (*holding)(nil)
	_ http.Hijacker       = (*holding)(nil)
	_ net.Conn            = (*heldConn)(nil)
)
