package ratelimit

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
)

// What requests end with that do not pass.
const (
	// challenge is the WWW-Authenticate value of a 401: what is missing is a key.
	challenge = `ApiKey realm="rate_limit"`

	// statusClientClosedRequest is the status nginx made known for a client that
	// left before it was answered.
	statusClientClosedRequest = 499
)

var (
	errExceeded = errors.New(http.StatusText(http.StatusTooManyRequests)) // {err.message}
	errDenied   = errors.New("the tenant's rule denies the route")
	errBlocked  = errors.New("the tenant is blocked")
	errNoTenant = errors.New("the request names no tenant")
)

// showNearest makes the verdict tell of the charge that is nearest to empty.
func (v *verdict) showNearest(from int, style headerStyle) {
	for i := from; i < len(v.charges); i++ {
		c, about := &v.charges[i], &v.charges[v.about]
		if c.shown() && !c.quiet() && (!about.shown() || c.state.Remaining <= about.state.Remaining) {
			v.about = i
		}
	}
	if (style.legacy || style.ietf) && v.charges[v.about].shown() {
		v.fields.tell(style, v.charges, v.about)
	}
}

// pass lets the request through to next, with what was decided in the header of
// its response.
func (v *verdict) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !v.fields.legacy && !v.fields.ietf {
		return next.ServeHTTP(w, r)
	}
	v.fields.write(w.Header())
	writer := &v.writer
	if writer.fields != nil {
		// Another directive of ours stands before this one, or this is
		// `handle_errors`, whose response is another writer's.
		writer = new(fieldWriter)
	}
	writer.ResponseWriterWrapper = caddyhttp.ResponseWriterWrapper{ResponseWriter: w}
	writer.fields = &v.fields
	return next.ServeHTTP(writer, r)
}

// refuse tells the client that the charge refused its request: with a document
// where it asks for one, and otherwise with the error that `handle_errors` renders.
// An error route that limits has no such route behind it, and the answer is written.
func (v *verdict) refuse(w http.ResponseWriter, r *http.Request, violated int, style headerStyle) error {
	c := &v.charges[violated]
	status := c.refusalStatus()
	v.about, v.closed, v.turned = violated, true, outcomeUndecided
	v.annotate(r.Context())
	header := w.Header()
	v.fields.erase(header)
	if c.shown() {
		v.fields.tell(style, v.charges, violated)
		v.fields.write(header)
	}
	if wait := c.state.RetryAfter; wait != limit.Never {
		v.retryAfter[0] = headers.Number(max(1, headers.WholeSeconds(wait)))
		header["Retry-After"] = v.retryAfter[:]
	}
	// Asked here as well: most requests do not, and the names need a slice.
	if headers.WantsProblem(r.Header["Accept"]) && refuseWithProblem(w, r, problem{status, v.violatedNames(), c.reason()}) {
		return nil
	}
	if inErrorRoute(r) {
		w.WriteHeader(status)
		return nil
	}
	return refusedError(status)
}

// publish makes the verdict known to the rest of the request: to other
// directives, and to placeholders.
func (v *verdict) publish() {
	if v.published {
		return
	}
	v.published = true
	if v.vars != nil {
		v.vars[verdictKey] = v
	}
	v.repl.Map(v.placeholder)
}

// placeholder gives the values of the handler's placeholders, blank where no bucket
// was asked.
func (v *verdict) placeholder(name string) (any, bool) {
	const prefix = "http.rate_limit."
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return nil, false
	}
	name = name[len(prefix):]
	if len(v.charges) == 0 {
		return "", slices.Contains([]string{"tenant", "route", "remaining", "source", "charged", "exceeded.name", "exceeded.reason"}, name)
	}
	about := &v.charges[v.about]
	switch name {
	case "tenant":
		return about.tenant, true
	case "route":
		return about.zone.name, true
	case "remaining":
		return about.state.Remaining, true
	case "source":
		return about.source.String(), true
	case "charged":
		return about.charged(v.cost), true
	case "exceeded.name":
		if about.outcome == outcomeRefused {
			return about.zone.name, true
		}
		return "", true
	case "exceeded.reason":
		if about.outcome == outcomeRefused {
			return about.reason(), true
		}
		return "", true
	}
	return nil, false
}

// turnAway notes that no bucket can be asked about a request. It passes all the same
// where the directive is in shadow, and is only counted.
func (h *Handler) turnAway(current *verdict, as outcome) (passes bool) {
	h.countAll(as)
	current.turnAway(as, h.zones[0])
	return h.Shadow
}

// passes counts a request that no bucket can be asked about, for the reason that is
// given or for what its identity means, and reports whether it passes all the same.
func (h *Handler) passes(current *verdict, means standing, reason error) bool {
	switch {
	case reason != nil:
		return h.turnAway(current, outcomeInvalid)
	case means == standingFree:
		h.countAll(outcomeAllowed)
		return true
	default:
		return h.turnAway(current, outcomeUnauthorized)
	}
}

// unidentified ends a request that is invalid for a reason, or has no tenant.
func (v *verdict) unidentified(w http.ResponseWriter, r *http.Request, reason error) error {
	if reason != nil {
		return v.close(w, r, invalidStatus(reason), reason)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	return v.close(w, r, http.StatusUnauthorized, errNoTenant)
}

// countAll counts a request that no bucket was asked about.
func (h *Handler) countAll(what outcome) {
	for _, zone := range h.zones {
		zone.counts.count(what, limit.SourceNone)
	}
}

// turnCostAway notes that a request's cost is unknown. It passes where none of its
// buckets, which are those since from, might have refused it.
func turnCostAway(current *verdict, from int) (passes bool) {
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
func (v *verdict) leave(r *http.Request, from int, reason error) error {
	for i := range v.charges[from:] {
		c := &v.charges[from+i]
		if c.outcome == outcomeUndecided {
			c.zone.counts.count(outcomeLeft, limit.SourceNone)
		} else {
			c.count()
		}
	}
	v.turnAway(outcomeLeft, v.charges[from].zone)
	v.closed = true
	v.publish()
	v.annotate(r.Context())
	return reason
}

// close ends the request for a reason that another directive of ours, in
// `handle_errors` say, must not find again.
func (v *verdict) close(w http.ResponseWriter, r *http.Request, status int, reason error) error {
	v.closed = true
	v.publish()
	v.annotate(r.Context())
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
func (v *verdict) passFree(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	v.publish()
	if v.turned != outcomeUndecided {
		v.annotate(r.Context())
	}
	return v.pass(w, r, next)
}

// refusedTrace is where every refusal comes from.
const refusedTrace = "ratelimit.(*verdict).refuse (respond.go)"

// refusedError is the error of a refused request. It is what caddyhttp.Error
// makes, which looks its caller up and formats it each time: under a flood that
// would be a third of what a refusal costs, and always the same text.
func refusedError(status int) caddyhttp.HandlerError {
	return caddyhttp.HandlerError{
		ID:         errorID(rand.Uint64()), //nolint:gosec // it names a line of a log, and is no secret
		StatusCode: status,
		Err:        errExceeded,
		Trace:      refusedTrace,
	}
}

// errorID makes an identifier like those of Caddy's other errors of a random
// number: nine letters and digits that no font confuses.
func errorID(random uint64) string {
	const dictionary = "abcdefghijkmnpqrstuvwxyz23456789"
	var id [9]byte
	for i := range id {
		id[i] = dictionary[random%uint64(len(dictionary))]
		random /= uint64(len(dictionary))
	}
	return string(id[:])
}

// problem is what a problem document tells of a refusal.
type problem struct {
	status int
	names  []string // of the violated policies
	reason string
}

// refuseWithProblem answers a refused request with a problem document (RFC 9457)
// that names the violated policies, and reports whether it did. If it did, the
// handler returns nil: the answer is written, with its status and whatever the
// header of w holds. It does not where the client has not asked for such a
// document, where an error route (handle_errors) may have an answer of its own,
// and where no policy is named, because no bucket has refused.
//
// An error route that a subroute keeps for itself, which only JSON can write, is
// not seen.
func refuseWithProblem(w http.ResponseWriter, r *http.Request, what problem) bool {
	if len(what.names) == 0 || !headers.WantsProblem(r.Header["Accept"]) || mayRender(r, what.status) {
		return false
	}
	writeProblem(w, r, what)
	return true
}

// writeProblem writes the document that names the violated policies.
func writeProblem(w http.ResponseWriter, r *http.Request, what problem) {
	document := headers.Problem(what.status, what.names, what.reason)
	header := w.Header()
	header.Set("Content-Type", headers.ProblemMedia)
	header.Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(what.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(document) // whom it does not reach has left
	}
}

// mayRender reports whether the server has an error route that may answer the
// refusal of the request, or cannot be asked. All sites on a port share one
// server, and most error routes are for other sites or other statuses.
func mayRender(r *http.Request, status int) bool {
	ctx := r.Context()
	server, found := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !found {
		return true
	}
	if inErrorRoute(r) {
		return false // nobody handles an error of one that handles errors
	}
	if server.Errors == nil || len(server.Errors.Routes) == 0 {
		return false
	}
	refused := server.Errors.WithError(r, caddyhttp.HandlerError{StatusCode: status, Err: errExceeded})
	if original, found := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); found {
		refused.Method, refused.RemoteAddr = original.Method, original.RemoteAddr
		refused.RequestURI, refused.URL = original.RequestURI, original.URL
	}
	return anyRenders(server.Errors.Routes, refused)
}

// anyRenders reports whether one of the routes matches the request with anything
// but subroutes of which none does. It looks the way that Caddy goes, and where
// it cannot tell it says yes.
func anyRenders(routes caddyhttp.RouteList, r *http.Request) bool {
	for i := range routes {
		matches, err := routes[i].MatcherSets.AnyMatchWithError(r)
		if err != nil {
			return true
		}
		if !matches {
			continue
		}
		for _, handler := range routes[i].Handlers {
			subroute, nested := handler.(*caddyhttp.Subroute)
			if !nested || anyRenders(subroute.Routes, r) {
				return true
			}
		}
		if routes[i].Terminal {
			return false
		}
	}
	return false
}

// Interface guards
var (
	_ http.ResponseWriter = (*fieldWriter)(nil)
	_ http.Pusher         = (*fieldWriter)(nil)
)
