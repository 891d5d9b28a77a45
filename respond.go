package ratelimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/limit"
)

// fields are the header fields that tell of a limit, one value each.
type fields struct {
	set    bool
	values [3]string // X-RateLimit-Limit, -Remaining, -Reset
}

// tell makes the fields tell of the charge.
func (f *fields) tell(c *charge) {
	capacity := c.bucket.Rule.Capacity
	f.set = true
	f.values = [3]string{
		number(capacity),
		number(min(max(c.state.Remaining, 0), capacity)),
		number(wholeSeconds(c.state.ResetAfter)),
	}
}

// write puts the fields in place of any others of the same name.
func (f *fields) write(header http.Header) {
	if !f.set {
		return
	}
	header["X-Ratelimit-Limit"] = f.values[0:1:1]
	header["X-Ratelimit-Remaining"] = f.values[1:2:2]
	header["X-Ratelimit-Reset"] = f.values[2:3:3]
}

// pass lets the request through to next, with what was decided in the header of
// its response.
func (a *answer) pass(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if !a.fields.set {
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

// close ends the request for a reason that no other directive of ours, in
// `handle_errors` say, would see otherwise.
func (a *answer) close(r *http.Request, status int, reason error) error {
	a.closed = true
	a.publish(r)
	return caddyhttp.Error(status, reason)
}

// refuse writes into the header what a client is told that the charge refused.
func (a *answer) refuse(w http.ResponseWriter, violated int, legacy bool) {
	c := &a.charges[violated]
	a.about = violated
	header := w.Header()
	if legacy && c.shown() {
		a.fields.tell(c)
	}
	a.fields.write(header)
	if wait := c.state.RetryAfter; wait != limit.Never {
		header["Retry-After"] = []string{number(max(1, wholeSeconds(wait)))}
	}
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
