package ratelimit

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddygate/ratelimit/limit"
)

// logGroup is the field of the access log that holds what was decided, and the
// prefix of a span's attributes.
const logGroup = "rate_limit"

// finding is what spans and access logs tell of an answer.
type finding struct {
	outcome string
	route   string
	source  string
	tenant  string // blank unless log_key asks for it

	decided    bool // by a bucket, and the numbers tell of it
	limit      int64
	remaining  int64
	retryAfter int64 // in ms, rounded up; 0 where nobody has to wait, -1 where no wait helps
}

// finding returns what there is to tell, and whether there is anything.
func (a *answer) finding() (f finding, found bool) {
	if a.turned != outcomeUndecided && (a.closed || len(a.charges) == 0) {
		return finding{outcome: outcomeWords[a.turned], route: a.turnedAt}, true
	}
	if len(a.charges) == 0 {
		return f, false
	}
	c := &a.charges[a.about]
	f = finding{outcome: outcomeWords[c.outcome], route: c.zone.name, source: c.source.String()}
	if c.zone.logKey {
		f.tenant = c.told()
	}
	if c.outcome == outcomeUndecided {
		f.outcome = outcomeWords[outcomeGranted] // nothing was asked of it, as nothing was left to decide
	}
	f.decided = c.shown()
	f.limit, f.remaining = c.bucket.Rule.Capacity, min(max(c.state.Remaining, 0), c.bucket.Rule.Capacity)
	f.retryAfter = roundedUp(c.state.RetryAfter, time.Millisecond)
	if c.state.RetryAfter == limit.Never {
		f.retryAfter = -1
	}
	return f, true
}

// annotate tells the current span and the access log what was decided. It costs
// no allocation where no span records and the server has no access log.
func (a *answer) annotate(ctx context.Context) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if f, found := a.finding(); found {
			span.SetAttributes(f.attributes()...)
		}
	}
	if a.logged || !accessLogged(ctx) {
		return
	}
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		a.logged = true
		extra.Add(zap.Object(logGroup, a)) // read when the request has ended
	}
}

// accessLogged reports whether the request's server writes an access log.
func accessLogged(ctx context.Context) bool {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && server != nil && server.Logs != nil
}

func (f *finding) attributes() []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 7),
		attribute.String(logGroup+".outcome", f.outcome), attribute.String(logGroup+".route", f.route))
	if f.source != "" {
		attributes = append(attributes, attribute.String(logGroup+".source", f.source))
	}
	if f.tenant != "" {
		attributes = append(attributes, attribute.String(logGroup+".tenant", f.tenant))
	}
	if f.decided {
		attributes = append(attributes, attribute.Int64(logGroup+".limit", f.limit),
			attribute.Int64(logGroup+".remaining", f.remaining), attribute.Int64(logGroup+".retry_after_ms", f.retryAfter))
	}
	return attributes
}

// MarshalLogObject writes what was decided, as a group of fields in an access log.
func (a *answer) MarshalLogObject(encoder zapcore.ObjectEncoder) error {
	f, found := a.finding()
	if !found {
		return nil
	}
	encoder.AddString("outcome", f.outcome)
	encoder.AddString("route", f.route)
	if f.source != "" {
		encoder.AddString("source", f.source)
	}
	if f.tenant != "" {
		encoder.AddString("tenant", f.tenant)
	}
	if f.decided {
		encoder.AddInt64("limit", f.limit)
		encoder.AddInt64("remaining", f.remaining)
		encoder.AddInt64("retry_after_ms", f.retryAfter)
	}
	return nil
}

// Interface guards
var _ zapcore.ObjectMarshaler = (*answer)(nil)
