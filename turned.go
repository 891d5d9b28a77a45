package ratelimit

import (
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// turnAway notes that no bucket can be asked about a request. It passes all the same
// where the directive is in shadow, and is only counted.
func (h *Handler) turnAway(current *answer, as outcome) (passes bool) {
	h.countAll(as)
	current.turnAway(as, h.zones[0])
	return h.Shadow
}

// turnCostAway notes that a request's cost is unknown. It passes where none of its
// buckets, which are those since from, might have refused it.
func turnCostAway(current *answer, from int) (passes bool) {
	passes = true
	for i := range current.charges[from:] {
		c := &current.charges[from+i]
		c.zone.counts.count(outcomeInvalid, limit.SourceNone)
		passes = passes && !c.enforced()
	}
	current.turnAway(outcomeInvalid, current.charges[from].zone)
	current.charges = current.charges[:from]
	return passes
}

// errEarly is why a request is answered with 425.
var errEarly = errors.New("the request came before its TLS handshake was complete, and the address it is limited by may not be its own")

// early reports whether the request's address may be another's: data that QUIC takes
// before a handshake is complete needs no answer to get here.
func early(r *http.Request) bool { return r.TLS != nil && !r.TLS.HandshakeComplete }

// invalidStatus is the status of a request that is invalid for a reason. After 425
// a client sends it again.
func invalidStatus(reason error) int {
	if errors.Is(reason, errEarly) {
		return http.StatusTooEarly
	}
	return http.StatusBadRequest
}

// outcomeOf is what a request is counted as that ends with a status of ours.
func outcomeOf(status int) outcome {
	if status == http.StatusForbidden {
		return outcomeDenied
	}
	return outcomeInvalid
}

// leave ends a request whose client has left while its buckets, those since from,
// were asked. What was decided before that is counted as such.
func (a *answer) leave(r *http.Request, from int, reason error) error {
	for i := range a.charges[from:] {
		c := &a.charges[from+i]
		if c.outcome == outcomeUndecided {
			c.zone.counts.count(outcomeLeft, limit.SourceNone)
		} else {
			c.zone.counts.count(c.outcome, c.source)
		}
	}
	a.turnAway(outcomeLeft, a.charges[from].zone)
	a.closed = true
	a.publish()
	a.annotate(r.Context())
	return reason
}

// close ends the request for a reason that another directive of ours, in
// `handle_errors` say, must not find again.
func (a *answer) close(w http.ResponseWriter, r *http.Request, status int, reason error) error {
	a.closed = true
	a.publish()
	a.annotate(r.Context())
	if inErrorRoute(r) {
		w.WriteHeader(status)
		return nil
	}
	return caddyhttp.Error(status, reason)
}

// inErrorRoute reports whether an error is being handled already. Who errs there
// has no say: Caddy would answer with the status of the first error.
func inErrorRoute(r *http.Request) bool {
	return r.Context().Value(caddyhttp.ErrorCtxKey) != nil
}

// passFree lets a request through of which no bucket was asked by this directive.
func (a *answer) passFree(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	a.publish()
	if a.turned != outcomeUndecided {
		a.annotate(r.Context())
	}
	return a.pass(w, r, next)
}
