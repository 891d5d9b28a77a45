package ratelimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// charge is one bucket that a request was held to, and what came of it. It is
// one allocation: the bucket's array is what the limiters are handed.
type charge struct {
	bucket   [1]limit.Bucket
	tenant   string
	decision limit.Decision
}

// answer is all that was decided about one request, however many directives it
// meets. It lives in the request's variables, so that `handle_errors` finds it.
type answer struct {
	first   charge
	more    []*charge
	used    bool
	writer  fieldWriter
	shown   bool  // whether values are set
	nearest int64 // what the shown bucket has left
	values  [3]string
}

// answerKey is where a request's variables hold its answer.
const answerKey = "rate_limit.answer"

// answerOf returns what was decided about the request so far, or nil.
func answerOf(r *http.Request) *answer {
	known, _ := caddyhttp.GetVar(r.Context(), answerKey).(*answer)
	return known
}

func newAnswer() *answer { return new(answer) }

// charged reports whether the request was held to the bucket already.
func (a *answer) charged(key limit.Key) bool {
	if a == nil || !a.used {
		return false
	}
	if a.first.bucket[0].Key == key {
		return true
	}
	for _, c := range a.more {
		if c.bucket[0].Key == key {
			return true
		}
	}
	return false
}

// add begins a charge. Until publish, the request does not know of it.
func (a *answer) add(bucket limit.Bucket) *charge {
	c := &a.first
	if a.used {
		c = new(charge)
		a.more = append(a.more, c)
	}
	a.used = true
	c.bucket[0] = bucket
	return c
}

// newest returns the latest charge.
func (a *answer) newest() *charge {
	if n := len(a.more); n > 0 {
		return a.more[n-1]
	}
	return &a.first
}

// publish makes the answer known to the rest of the request: to other
// directives, and to placeholders.
func (a *answer) publish(r *http.Request) {
	if len(a.more) > 0 {
		return // the first charge has published it
	}
	ctx := r.Context()
	caddyhttp.SetVar(ctx, answerKey, a)
	ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Map(a.placeholder)
}

// placeholder gives the values of the handler's placeholders.
func (a *answer) placeholder(name string) (any, bool) {
	const prefix = "http.rate_limit."
	if len(name) <= len(prefix) || name[:len(prefix)] != prefix {
		return nil, false
	}
	newest := a.newest()
	switch name[len(prefix):] {
	case "tenant":
		return newest.tenant, true
	case "route":
		return newest.bucket[0].Key.Route, true
	case "remaining":
		return newest.decision.First.Remaining, true
	case "source":
		return newest.decision.Source.String(), true
	case "exceeded.name":
		if newest.decision.Granted < 1 {
			return newest.bucket[0].Key.Route, true
		}
		return "", true
	}
	return nil, false
}

// pass lets the request through to next, with the newest decision in its
// response header if fields says so.
func (a *answer) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, fields bool) error {
	if !fields {
		return next.ServeHTTP(w, r)
	}
	wrapped := a.writer.ResponseWriter != nil
	a.show(a.newest(), false)
	a.write(w.Header())
	if wrapped {
		return next.ServeHTTP(w, r)
	}
	a.writer = fieldWriter{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, answer: a}
	return next.ServeHTTP(&a.writer, r)
}

// passAgain lets a request through that was decided before, and keeps the
// header of that decision.
func (a *answer) passAgain(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !a.shown {
		return next.ServeHTTP(w, r)
	}
	return next.ServeHTTP(&fieldWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		answer:                a,
	}, r)
}

// refuse writes into the header what a refused client is told.
func (a *answer) refuse(w http.ResponseWriter, fields bool) {
	refused := a.newest()
	header := w.Header()
	if fields && refused.decision.Source != limit.SourceNone {
		a.show(refused, true)
		a.write(header)
	}
	if wait := refused.decision.First.RetryAfter; wait >= 0 {
		header["Retry-After"] = []string{number(max(1, wholeSeconds(wait)))}
	}
}

// show makes the charge the one that the header tells about: the violated one
// always, any other only if its bucket is nearer to empty than the one shown.
func (a *answer) show(c *charge, violated bool) {
	state, capacity := c.decision.First, c.bucket[0].Rule.Capacity
	remaining := min(max(state.Remaining, 0), capacity)
	if a.shown && !violated && remaining >= a.nearest {
		return
	}
	a.shown, a.nearest = true, remaining
	a.values = [3]string{number(capacity), number(remaining), number(wholeSeconds(state.ResetAfter))}
}

// write sets the fields, one value each.
func (a *answer) write(header http.Header) {
	header["X-Ratelimit-Limit"] = a.values[0:1:1]
	header["X-Ratelimit-Remaining"] = a.values[1:2:2]
	header["X-Ratelimit-Reset"] = a.values[2:3:3]
}

// fieldWriter sets our fields again when the header is about to go out, because
// an upstream may have added its own of the same name.
type fieldWriter struct {
	caddyhttp.ResponseWriterWrapper
	answer *answer
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

// FlushError sends what is there, the header first.
func (w *fieldWriter) FlushError() error {
	w.settle()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *fieldWriter) settle() {
	if !w.wrote {
		w.wrote = true
		w.answer.write(w.Header())
	}
}

// wholeSeconds rounds up, so that who waits that long has waited enough.
func wholeSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
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

// Interface guards
var (
	_ http.ResponseWriter = (*fieldWriter)(nil)
	_ http.Pusher         = (*fieldWriter)(nil)
)
