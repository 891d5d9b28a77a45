package ratelimit

import (
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/limit"
)

// The words of the option headers.
const (
	headersLegacy = "legacy"
	headersIETF   = "ietf"
	headersBoth   = "both"
	headersOff    = "off"
)

// The words of the option reset.
const (
	resetDelta = "delta"
	resetEpoch = "epoch"
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
		f.values[1] = headers.Number(min(max(c.state.Remaining, 0), capacity))
		var now time.Time
		if style.epoch {
			now = time.Now()
		}
		f.values[2] = headers.Number(headers.Reset(style.epoch, now, c.state.ResetAfter))
	}
	if f.ietf {
		quotas := quotasOf(charges)
		f.values[3], f.values[4] = headers.Policy(quotas), headers.Limit(quotas)
	}
}

func quotasOf(charges []charge) []headers.Quota {
	quotas := make([]headers.Quota, 0, len(charges))
	for i := range charges {
		if c := &charges[i]; c.shown() && !c.quiet() {
			quotas = append(quotas, headers.Quota{Name: c.zone.name, Rule: c.bucket.Rule, Held: c.held(), State: c.state})
		}
	}
	return quotas
}

// held returns the rule that the state is one of: this gateway's part of it where
// it decides in the place of Redis.
func (c *charge) held() limit.Rule {
	if c.source == limit.SourceLocal && c.zone.sharers != nil {
		return c.bucket.Rule.Share(c.zone.sharers())
	}
	return c.bucket.Rule
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
