package ratelimit

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddygate/ratelimit/internal/background"
	"github.com/caddygate/ratelimit/internal/headers"
	"github.com/caddygate/ratelimit/internal/hot"
	"github.com/caddygate/ratelimit/limit"
	"github.com/caddygate/ratelimit/redisbucket"
	"github.com/caddygate/ratelimit/rulecache"
)

// refusals is the log of refusals, sampled: the first of a bucket in a minute is
// a line of its own, the others of that minute are one count. Under attack a log
// line for each refusal would cost more than the attack. Lines are written by a
// goroutine of their own, so that no request waits for the log. What has no room,
// among the buckets or among the lines, is counted together.
type refusals struct {
	logger  *zap.Logger
	sampler *hot.Sampler[refusal]
	lines   chan refusalLine
	unsaid  atomic.Int64 // refusals whose line had no room
	ended   atomic.Bool  // nobody takes lines any more
}

const (
	// refusalLines is how many lines may wait for the log.
	refusalLines = 1024

	// The messages of the lines.
	refusedFirst  = "rate limit exceeded"
	refusedAgain  = "rate limit exceeded again"
	refusedOthers = "rate limit exceeded by others"
)

// refusalLine is one that waits for the log.
type refusalLine struct {
	message string
	fields  []zap.Field
}

// refusal is what the log says about one.
type refusal struct {
	zone     string
	tenant   string // blank unless log_key asks for it
	remoteIP string // of whom the first refusal of the minute met
	clientIP string
	source   limit.Source
	reason   string
	wait     time.Duration
}

func newRefusals(logger *zap.Logger) *refusals {
	return &refusals{logger: logger, sampler: hot.NewSampler(time.Minute, refusal.kept), lines: make(chan refusalLine, refusalLines)}
}

// start writes what waits, and the counts of minutes that are over, until stop is
// called, which writes all counts.
func (r *refusals) start() (stop func()) {
	return background.Go(func(ctx context.Context) {
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case line := <-r.lines:
				r.logger.Info(line.message, line.fields...)
			case now := <-ticker.C:
				r.flush(now, false)
			case <-ctx.Done():
				r.ended.Store(true)
				r.drain()
				r.flush(time.Now(), true)
				return
			}
		}
	})
}

// drain writes the lines that wait.
func (r *refusals) drain() {
	for {
		select {
		case line := <-r.lines:
			r.logger.Info(line.message, line.fields...)
		default:
			return
		}
	}
}

// note records a refusal of the bucket. It does not wait.
func (r *refusals) note(key limit.Key, said refusal) {
	r.noteAt(time.Now(), key, said)
}

func (r *refusals) noteAt(now time.Time, key limit.Key, said refusal) {
	said, first, over := r.sampler.Note(now, key, said)
	if over.More > 0 && !r.queue(again(&over)) {
		r.unsaid.Add(over.More)
	}
	if first && !r.queue(refusalLine{refusedFirst, said.line()}) {
		r.unsaid.Add(1)
	}
}

// queue hands a line to the log, and reports whether there was room. Requests that
// outlive their config write for themselves.
func (r *refusals) queue(line refusalLine) bool {
	if r.ended.Load() {
		r.logger.Info(line.message, line.fields...)
		return true
	}
	select {
	case r.lines <- line:
		return true
	default:
		return false
	}
}

// write logs one refusal at once.
func (r *refusals) write(said refusal) {
	r.logger.Info(refusedFirst, said.line()...)
}

// flush writes the counts of the minutes that are over at now, or of all, and
// forgets their buckets.
func (r *refusals) flush(now time.Time, all bool) {
	samples, others := r.sampler.Over(now, all)
	for i := range samples {
		line := again(&samples[i])
		r.logger.Info(line.message, line.fields...)
	}
	if others += r.unsaid.Swap(0); others > 0 {
		r.logger.Info(refusedOthers, zap.Int64("refused", others))
	}
}

// again is the line about those after the first.
func again(s *hot.Sample[refusal]) refusalLine {
	return refusalLine{refusedAgain, append(s.First.fields(), zap.Int64("refused", s.More), zap.Time("since", s.Since))}
}

// kept is the refusal for longer than its request, whose buffer its texts may be in.
func (s refusal) kept() refusal {
	s.tenant, s.clientIP = strings.Clone(s.tenant), strings.Clone(s.clientIP)
	return s
}

// line is what the line about one refusal tells.
func (s *refusal) line() []zap.Field {
	fields := append(s.fields(), zap.String("remote_ip", s.remoteIP), zap.String("client_ip", s.clientIP))
	if s.wait != limit.Never {
		fields = append(fields, zap.Duration("wait", s.wait))
	}
	return fields
}

func (s *refusal) fields() []zap.Field {
	fields := []zap.Field{zap.String("zone", s.zone), zap.Stringer("source", s.source), zap.String("reason", s.reason)}
	if s.tenant != "" {
		fields = append(fields, zap.String("key", s.tenant))
	}
	return fields
}

// tellRefusal logs the refusal and emits its event. The charge then holds the
// wait that the client is told, too.
func (h *Handler) tellRefusal(r *http.Request, c *charge) {
	c.state.RetryAfter = jittered(c.state.RetryAfter, h.Jitter, rand.Float64)
	said := refusal{zone: c.zone.name, source: c.source, reason: c.reason(), wait: c.state.RetryAfter, remoteIP: remoteIP(r), clientIP: clientIP(r)}
	if h.LogKey {
		said.tenant = c.told()
	}
	if h.LogAll {
		h.app.refusals.write(said)
	} else {
		h.app.refusals.note(c.bucket.Key, said)
	}
	h.app.memory.top.Note(c.bucket.Key, c.zone.name, c.told())
	h.emitExceeded(r, c)
}

// jittered adds to a wait up to the part jitter of it. random returns a number
// from 0 to below 1; limit.MaxWait is the most. A wait that is none, such as
// limit.Never, stays.
func jittered(wait time.Duration, jitter float64, random func() float64) time.Duration {
	if wait <= 0 || jitter <= 0 {
		return wait
	}
	longer := float64(wait) * (1 + jitter*random())
	return time.Duration(min(longer, float64(limit.MaxWait)))
}

// observeRules logs and tells what happens to the rules. Each change of state
// comes once.
func (a *App) observeRules(event rulecache.Event) {
	a.tellRules(event)
	fields := []zap.Field{
		zap.Int("rules", event.Rules),
		zap.Int("rejected", event.Rejected),
	}
	if event.Err != nil {
		fields = append(fields, zap.Error(event.Err))
	}
	if event.Kind == rulecache.EventLoaded {
		fields = append(fields, zap.Duration("took", event.Took))
	}
	a.logger.Log(rulesLevel(event), "PostgreSQL: "+event.Kind.String(), fields...)
	if event.Kind == rulecache.EventLoaded {
		a.logRejections()
	}
}

// loggedRejections is how many rejected rows are logged one by one at each load.
const loggedRejections = 5

// logRejections logs the first rows that make no rule. It names their ids and not
// their tenants, which may be secrets.
func (a *App) logRejections() {
	_, rejections := a.source.Snapshot().Rejected()
	for _, rejection := range rejections[:min(len(rejections), loggedRejections)] {
		a.logger.Warn("PostgreSQL: a row is not a valid rule",
			zap.String("id", rejection.ID), zap.String("route", rejection.Route), zap.String("reason", rejection.Reason))
	}
}

func rulesLevel(event rulecache.Event) zapcore.Level {
	switch event.Kind {
	case rulecache.EventFailed, rulecache.EventStoreFailed, rulecache.EventStoredUnusable:
		return zapcore.ErrorLevel
	case rulecache.EventListenLost, rulecache.EventPollOnly, rulecache.EventStoredUsed:
		return zapcore.WarnLevel
	case rulecache.EventLoaded:
		if event.Rejected > 0 {
			return zapcore.WarnLevel
		}
	default:
	}
	return zapcore.InfoLevel
}

// observeRedis logs and tells what happens to the Redis that is talked to.
func (a *App) observeRedis(event redisbucket.Event) {
	a.tellRedis(event)
	level := zapcore.WarnLevel
	switch event.Kind {
	case redisbucket.BreakerClosed, redisbucket.Reached, redisbucket.MastersChanged:
		level = zapcore.InfoLevel
	case redisbucket.VersionTooOld, redisbucket.ClusterNode, redisbucket.NoCluster,
		redisbucket.SentinelServer, redisbucket.NoSentinel, redisbucket.UnknownMaster:
		level = zapcore.ErrorLevel
	default:
	}
	fields := []zap.Field{zap.String("node", event.Address), zap.String("detail", event.Detail)}
	if event.Words != "" {
		fields = append(fields, zap.String("words", event.Words))
	}
	a.logger.Log(level, event.Kind.String(), fields...)
}

// logGroup is the field of the access log that holds what was decided, and the
// prefix of a span's attributes.
const logGroup = "rate_limit"

// finding is what spans and access logs tell of a verdict.
type finding struct {
	outcome string
	route   string
	source  string
	reason  string // of a refusal
	tenant  string // blank unless log_key asks for it
	charged int64  // so far; -1 where no answer tells what a request costs

	decided    bool // by a bucket, and the numbers tell of it
	limit      int64
	remaining  int64
	retryAfter int64 // in ms, rounded up; 0 where nobody has to wait, -1 where no wait helps
}

// finding returns what there is to tell, and whether there is anything.
func (v *verdict) finding() (f finding, found bool) {
	if v.turned != outcomeUndecided && (v.closed || len(v.charges) == 0) {
		return finding{outcome: outcomeWords[v.turned], route: v.turnedAt, charged: -1}, true
	}
	if len(v.charges) == 0 {
		return f, false
	}
	c := &v.charges[v.about]
	f = finding{outcome: outcomeWords[c.outcome], route: c.zone.name, source: c.source.String(), charged: -1}
	if c.zone.meter != nil {
		f.charged = c.charged(v.cost)
	}
	if c.outcome == outcomeRefused {
		f.reason = c.reason()
	}
	if c.zone.logKey {
		f.tenant = c.told()
	}
	if c.outcome == outcomeUndecided {
		f.outcome = outcomeWords[outcomeGranted] // nothing was asked of it, as nothing was left to decide
	}
	f.decided = c.shown()
	f.limit, f.remaining = c.bucket.Rule.Capacity, min(max(c.state.Remaining, 0), c.bucket.Rule.Capacity)
	f.retryAfter = headers.RoundedUp(c.state.RetryAfter, time.Millisecond)
	if c.state.RetryAfter == limit.Never {
		f.retryAfter = -1
	}
	return f, true
}

// annotate tells the current span and the access log what was decided. It costs
// no allocation where no span records and the server has no access log.
func (v *verdict) annotate(ctx context.Context) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if f, found := v.finding(); found {
			span.SetAttributes(f.attributes()...)
		}
	}
	if v.logged || !accessLogged(ctx) {
		return
	}
	if extra, ok := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields); ok {
		v.logged = true
		extra.Add(zap.Object(logGroup, v)) // read when the request has ended
	}
}

// accessLogged reports whether the request's server writes an access log.
func accessLogged(ctx context.Context) bool {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	return ok && server != nil && server.Logs != nil
}

func (f *finding) attributes() []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 9),
		attribute.String(logGroup+".outcome", f.outcome), attribute.String(logGroup+".route", f.route))
	if f.source != "" {
		attributes = append(attributes, attribute.String(logGroup+".source", f.source))
	}
	if f.reason != "" {
		attributes = append(attributes, attribute.String(logGroup+".reason", f.reason))
	}
	if f.tenant != "" {
		attributes = append(attributes, attribute.String(logGroup+".tenant", f.tenant))
	}
	if f.charged >= 0 {
		attributes = append(attributes, attribute.Int64(logGroup+".charged", f.charged))
	}
	if f.decided {
		attributes = append(attributes, attribute.Int64(logGroup+".limit", f.limit),
			attribute.Int64(logGroup+".remaining", f.remaining), attribute.Int64(logGroup+".retry_after_ms", f.retryAfter))
	}
	return attributes
}

// MarshalLogObject writes what was decided, as a group of fields in an access log.
func (v *verdict) MarshalLogObject(encoder zapcore.ObjectEncoder) error {
	f, found := v.finding()
	if !found {
		return nil
	}
	encoder.AddString("outcome", f.outcome)
	encoder.AddString("route", f.route)
	if f.source != "" {
		encoder.AddString("source", f.source)
	}
	if f.reason != "" {
		encoder.AddString("reason", f.reason)
	}
	if f.tenant != "" {
		encoder.AddString("tenant", f.tenant)
	}
	if f.charged >= 0 {
		encoder.AddInt64("charged", f.charged)
	}
	if f.decided {
		encoder.AddInt64("limit", f.limit)
		encoder.AddInt64("remaining", f.remaining)
		encoder.AddInt64("retry_after_ms", f.retryAfter)
	}
	return nil
}

// Interface guards
var _ zapcore.ObjectMarshaler = (*verdict)(nil)
