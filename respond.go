package ratelimit

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// headerStyle says which fields tell of a limit, and how.
type headerStyle struct {
	legacy bool // X-RateLimit-*
	ietf   bool // RateLimit and RateLimit-Policy
	epoch  bool // X-RateLimit-Reset is a time, not a wait
}

// headerStyle returns what the words of the options mean, the app's where the
// handler has none.
func (h *Handler) headerStyle() headerStyle {
	word := cmp.Or(h.Headers, h.app.Headers)
	if word == "" && len(h.RateLimits) > 0 {
		word = headersOff // caddy-ratelimit sends none
	}
	return headerStyle{
		legacy: word == "" || word == headersLegacy || word == headersBoth,
		ietf:   word == headersIETF || word == headersBoth,
		epoch:  h.app.Reset == resetEpoch,
	}
}

// fields are the header fields that tell of a limit, one value each.
type fields struct {
	legacy, ietf bool      // which are set
	values       [5]string // in the order of fieldNames
}

// fieldNames are the fields in the form that http.Header has them.
var fieldNames = [5]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit"}

// legacyFields is how many of them are not those of the IETF.
const legacyFields = 3

// tell makes the fields tell of the charge number about, and those of the IETF
// of all charges that there is anything to tell of.
func (f *fields) tell(style headerStyle, charges []charge, about int) {
	c := &charges[about]
	f.legacy, f.ietf = f.legacy || style.legacy, f.ietf || style.ietf
	if f.legacy {
		capacity := c.bucket.Rule.Capacity
		f.values[0] = c.zone.capacity(capacity)
		f.values[1] = number(min(max(c.state.Remaining, 0), capacity))
		var now time.Time
		if style.epoch {
			now = time.Now()
		}
		f.values[2] = number(resetValue(style.epoch, now, c.state.ResetAfter))
	}
	if f.ietf {
		quotas := quotasOf(charges)
		f.values[3], f.values[4] = policyField(quotas), limitField(quotas)
	}
}

func quotasOf(charges []charge) []quota {
	quotas := make([]quota, 0, len(charges))
	for i := range charges {
		if c := &charges[i]; c.shown() {
			quotas = append(quotas, quota{name: c.zone.name, rule: c.bucket.Rule, held: c.held(), state: c.state})
		}
	}
	return quotas
}

// showNearest makes the answer tell of the charge that is nearest to empty.
func (a *answer) showNearest(from int, style headerStyle) {
	for i := from; i < len(a.charges); i++ {
		c, about := &a.charges[i], &a.charges[a.about]
		if c.shown() && (!about.shown() || c.state.Remaining <= about.state.Remaining) {
			a.about = i
		}
	}
	if (style.legacy || style.ietf) && a.charges[a.about].shown() {
		a.fields.tell(style, a.charges, a.about)
	}
}

// write puts the fields in place of any others of the same name.
func (f *fields) write(header http.Header) {
	for i, name := range fieldNames {
		if f.has(i) {
			header[name] = f.values[i : i+1 : i+1]
		}
	}
}

// erase takes back what another directive told of a bucket that is not the one
// which refused the request.
func (f *fields) erase(header http.Header) {
	for i, name := range fieldNames {
		if f.has(i) {
			delete(header, name)
		}
	}
	f.legacy, f.ietf = false, false
}

// has reports whether field number i is set.
func (f *fields) has(i int) bool {
	if i < legacyFields {
		return f.legacy
	}
	return f.ietf
}

// pass lets the request through to next, with what was decided in the header of
// its response.
func (a *answer) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !a.fields.legacy && !a.fields.ietf {
		return next.ServeHTTP(w, r)
	}
	a.fields.write(w.Header())
	writer := &a.writer
	if writer.fields != nil {
		// Another directive of ours stands before this one, or this is
		// `handle_errors`, whose response is another writer's.
		writer = new(fieldWriter)
	}
	writer.ResponseWriterWrapper = caddyhttp.ResponseWriterWrapper{ResponseWriter: w}
	writer.fields = &a.fields
	return next.ServeHTTP(writer, r)
}

// refuse tells the client that the charge refused its request: with a document
// where it asks for one, and otherwise with the error that `handle_errors` renders.
// An error route that limits has no such route behind it, and the answer is written.
func (a *answer) refuse(w http.ResponseWriter, r *http.Request, violated int, style headerStyle) error {
	c := &a.charges[violated]
	a.about, a.closed, a.turned = violated, true, outcomeUndecided
	a.annotate(r.Context())
	header := w.Header()
	a.fields.erase(header)
	if c.shown() {
		a.fields.tell(style, a.charges, violated)
		a.fields.write(header)
	}
	if wait := c.state.RetryAfter; wait != limit.Never {
		a.retryAfter[0] = number(max(1, wholeSeconds(wait)))
		header["Retry-After"] = a.retryAfter[:]
	}
	// Asked here as well: most requests do not, and the names need a slice.
	if wantsProblem(r.Header["Accept"]) && refuseWithProblem(w, r, a.violatedNames()) {
		return nil
	}
	if inErrorRoute(r) {
		w.WriteHeader(http.StatusTooManyRequests)
		return nil
	}
	return refusedError()
}

// fieldWriter sets our fields again when the header is about to go out, because
// an upstream may have added its own of the same name.
type fieldWriter struct {
	caddyhttp.ResponseWriterWrapper
	fields *fields
	wrote  bool
}

// WriteHeader sets the fields and sends the header. An interim response is not
// the answer yet, and reverse_proxy clears the header after it.
func (w *fieldWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.settle()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends the header first, as net/http does.
func (w *fieldWriter) Write(p []byte) (int, error) {
	w.settle()
	return w.ResponseWriter.Write(p)
}

// ReadFrom sends the header first, and then what r has.
func (w *fieldWriter) ReadFrom(r io.Reader) (int64, error) {
	w.settle()
	return w.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError sends what is there, the header first.
func (w *fieldWriter) FlushError() error {
	w.settle()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *fieldWriter) settle() {
	if !w.wrote {
		w.wrote = true
		w.fields.write(w.Header())
	}
}

// wholeSeconds rounds up, so that who waits that long has waited enough.
func wholeSeconds(d time.Duration) int64 { return roundedUp(d, time.Second) }

// roundedUp is how many whole units a wait takes. It does not overflow.
func roundedUp(d, unit time.Duration) int64 {
	units := int64(d / unit)
	if d%unit > 0 {
		units++
	}
	return units
}

// numbers are the texts of the numbers that headers mostly hold.
var numbers = func() (texts [1024]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

func number(n int64) string {
	if n >= 0 && n < int64(len(numbers)) {
		return numbers[n]
	}
	return strconv.FormatInt(n, 10)
}

// publish makes the answer known to the rest of the request: to other
// directives, and to placeholders.
func (a *answer) publish() {
	if a.published {
		return
	}
	a.published = true
	if a.vars != nil {
		a.vars[answerKey] = a
	}
	a.repl.Map(a.placeholder)
}

// placeholder gives the values of the handler's placeholders, blank where no bucket
// was asked.
func (a *answer) placeholder(name string) (any, bool) {
	const prefix = "http.rate_limit."
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return nil, false
	}
	name = name[len(prefix):]
	if len(a.charges) == 0 {
		return "", slices.Contains([]string{"tenant", "route", "remaining", "source", "exceeded.name"}, name)
	}
	about := &a.charges[a.about]
	switch name {
	case "tenant":
		return about.tenant, true
	case "route":
		return about.zone.name, true
	case "remaining":
		return about.state.Remaining, true
	case "source":
		return about.source.String(), true
	case "exceeded.name":
		if about.outcome == outcomeRefused {
			return about.zone.name, true
		}
		return "", true
	}
	return nil, false
}

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

// refusedTrace is where every refusal comes from.
const refusedTrace = "ratelimit.(*answer).refuse (respond.go)"

// refusedError is the error of a refused request. It is what caddyhttp.Error
// makes, which looks its caller up and formats it each time: under a flood that
// would be a third of what a refusal costs, and always the same text.
func refusedError() caddyhttp.HandlerError {
	return caddyhttp.HandlerError{
		ID:         errorID(rand.Uint64()), //nolint:gosec // it names a line of a log, and is no secret
		StatusCode: http.StatusTooManyRequests,
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

// Interface guards
var (
	_ http.ResponseWriter = (*fieldWriter)(nil)
	_ http.Pusher         = (*fieldWriter)(nil)
)
