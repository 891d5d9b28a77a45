package ratelimit

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/internal/tally"
	"github.com/caddygate/ratelimit/limit"
)

// settleEvery is how often an answer without an end in sight is settled.
const settleEvery = 2 * time.Second

// Why a cost could not be read, for a metric.
const (
	unreadMissing = "missing" // the answer does not say it
	unreadInvalid = "invalid" // it is no whole number within bounds
	unreadEncoded = "encoded" // the body is compressed
	unreadUnseen  = "unseen"  // there was no answer
	lostNotKnown  = "unknown" // the rules or the region's share are not known
	lostOtherRule = "rule"    // the rule counts in another way by now
)

// bill is what one charge of a request costs in the end.
type bill struct {
	charge  *charge
	who     *visitor
	reader  *tally.Reader
	taken   int64 // at the start, and not settled yet
	spent   int64 // settled so far
	settled bool
}

// answer is a response writer that sees what an answer costs while it passes. It keeps
// what the writer before it can do: what is sent by ReadFrom is still sent so.
type answer struct {
	caddyhttp.ResponseWriterWrapper
	handler *Handler
	verdict *verdict
	request *http.Request
	bills   []bill
	granted time.Time
	status  int // 0: no header has gone out
	body    int64
	reads   bool // some bill is by the body
	cut     bool // it may have ended before all of it was sent
	latest  time.Time
}

// answer returns what sees the answer to a request, whose charges are those since from
// and were asked for at a time.
func (h *Handler) answer(current *verdict, from int, asked time.Time) *answer {
	a := &answer{handler: h, verdict: current, granted: asked, latest: asked}
	for i := range current.charges[from:] {
		if c := &current.charges[from+i]; c.zone.meter != nil && c.settles() {
			a.bills = append(a.bills, bill{charge: c, who: current.who, taken: c.due.taken})
			a.reads = a.reads || c.zone.meter.reading()
		}
	}
	return a
}

// serve lets the request pass, and settles what its answer costs.
func (a *answer) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	if len(a.bills) == 0 {
		return a.verdict.pass(w, r, next)
	}
	a.ResponseWriterWrapper, a.request = caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, r
	for i := range a.bills {
		if a.bills[i].charge.zone.meter.paths != nil {
			r.Header.Del("Accept-Encoding") // nobody behind compresses for the client
		}
	}
	ended := false
	defer func() {
		if !ended { // a panic, which reverse_proxy ends cut answers by
			a.end(nil, true)
			a.verdict.annotate(r.Context())
		}
	}()
	err = a.verdict.pass(a, r, next)
	ended = true
	a.end(err, false)
	a.verdict.annotate(r.Context()) // again: by now it is known what was charged
	return err
}

// charged is what the request has cost so far: what its answer tells, or what it took.
func (c *charge) charged(cost int64) int64 {
	switch {
	case c.outcome != outcomeGranted && c.outcome != outcomeShadow:
		return 0
	case c.due == nil:
		return c.payable(cost)
	case c.due.billed:
		return c.due.spent
	default:
		return c.due.taken
	}
}

// settles reports whether what the charge took can be settled.
func (c *charge) settles() bool {
	return c.due != nil && c.due.taken > 0 && c.source != limit.SourceNone && (c.outcome == outcomeGranted || c.outcome == outcomeShadow)
}

// WriteHeader notes the status, and settles what the header tells.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.begin(status)
	}
	a.ResponseWriterWrapper.WriteHeader(status)
}

// Write passes the body on and counts it.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	n, err := a.ResponseWriterWrapper.Write(p)
	a.passed(p[:max(0, n)], int64(n))
	return n, err
}

// ReadFrom passes the body on as the writer before can, unless it is to be read.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	if a.status == 0 {
		a.begin(http.StatusOK)
	}
	for i := range a.bills {
		if a.bills[i].reader != nil {
			return io.Copy(writerOnly{a}, r)
		}
	}
	n, err := a.ResponseWriterWrapper.ReadFrom(r)
	a.passed(nil, n)
	return n, err
}

// writerOnly hides ReadFrom.
type writerOnly struct{ io.Writer }

// begin notes that the answer's header goes out. Caddy's reverse_proxy writes 499 where
// the client has left: that is no answer, and costs at the end what was taken.
func (a *answer) begin(status int) {
	a.status = status
	if status == statusClientClosedRequest {
		return
	}
	header := a.Header()
	for i := range a.bills {
		b := &a.bills[i]
		m := b.charge.zone.meter
		switch {
		case m.early():
			a.settle(b, a.byHeader(b), true)
		case m.paths != nil:
			kind := tally.KindOf(header.Get("Content-Type"))
			if coding := header.Get("Content-Encoding"); coding == "" || strings.EqualFold(coding, "identity") {
				b.reader = tally.NewReader(kind, m.paths)
			}
		case m.bytes > 0:
			if n, found := tally.Number(header.Get("Content-Length")); found {
				a.settle(b, begun(a.bytesOf(n), m.bytes), true)
			}
		}
	}
}

// bytesOf is how many bytes of body a client gets.
func (a *answer) bytesOf(n int64) int64 {
	if a.request.Method == http.MethodHead || a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return 0
	}
	return n
}

// begun is how many times so many bytes were begun.
func begun(n, each int64) int64 { return (n + each - 1) / each }

// byHeader is the cost that the status or a field of the header tells.
func (a *answer) byHeader(b *bill) int64 {
	m := b.charge.zone.meter
	if m.statuses != nil {
		if m.charges(a.status) {
			return b.taken
		}
		return 0
	}
	values := a.Header()[m.header]
	if len(values) == 0 {
		return a.unread(b, unreadMissing, "")
	}
	n, ok := tally.Number(strings.TrimSpace(values[0]))
	if !ok || len(values) > 1 {
		return a.unread(b, unreadInvalid, values[0])
	}
	return n
}

// unread is what an answer costs that does not say it, or says said.
func (a *answer) unread(b *bill, reason, said string) int64 {
	z := b.charge.zone
	z.counts.countUnread(reason)
	cost := b.charge.due.taken
	if z.meter.unread >= 0 {
		cost = z.meter.unread
	}
	if line := a.handler.logger.Check(zap.DebugLevel, "the answer does not say what it cost"); line != nil {
		line.Write(zap.String("zone", z.name), zap.String("reason", reason), zap.String("said", block.Clipped(said)), zap.Int64("charged", cost))
	}
	return cost
}

// passed counts a part of the body, and settles what has been under way for long.
func (a *answer) passed(part []byte, n int64) {
	if !a.reads {
		return
	}
	a.body += n
	for i := range a.bills {
		if r := a.bills[i].reader; r != nil {
			r.Write(part)
		}
	}
	now := time.Now()
	if now.Sub(a.latest) < settleEvery {
		return
	}
	a.latest = now
	for i := range a.bills {
		if b := &a.bills[i]; !b.settled {
			a.settle(b, a.soFar(b), false)
		}
	}
}

// soFar is what is known of the cost while the body passes: 0 where nothing is.
func (a *answer) soFar(b *bill) int64 {
	switch m := b.charge.zone.meter; {
	case m.bytes > 0:
		return begun(a.bytesOf(a.body), m.bytes)
	case b.reader != nil:
		return max(b.reader.SoFar(), b.reader.Events())
	}
	return 0
}

// end settles the rest. Unseen tells that the handler has panicked.
func (a *answer) end(err error, panicked bool) {
	unseen := false
	a.cut = panicked || err != nil || a.request.Context().Err() != nil
	if a.status == 0 {
		switch {
		case err != nil:
			a.status = http.StatusInternalServerError
			if failed, found := errors.AsType[caddyhttp.HandlerError](err); found && failed.StatusCode != 0 {
				a.status = failed.StatusCode
			}
			unseen = a.request.Context().Err() != nil
		case panicked, a.request.Context().Err() != nil:
			unseen = true
		default:
			a.status = http.StatusOK
		}
	}
	unseen = unseen || a.status == statusClientClosedRequest
	for i := range a.bills {
		if b := &a.bills[i]; !b.settled {
			a.settle(b, a.atEnd(b, unseen), true)
		}
	}
}

// atEnd is what is known of the cost when the answer has ended.
func (a *answer) atEnd(b *bill, unseen bool) int64 {
	m := b.charge.zone.meter
	switch {
	case unseen:
		b.charge.zone.counts.countUnread(unreadUnseen)
		return max(b.taken, b.spent)
	case m.early():
		return a.byHeader(b)
	case m.bytes > 0:
		return begun(a.bytesOf(a.body), m.bytes)
	case m.value != nil:
		said := a.verdict.repl.ReplaceAll(m.value.template, "")
		n, ok := tally.Number(strings.TrimSpace(said))
		if !ok {
			return a.unread(b, unreadInvalid, said)
		}
		return n
	case b.reader == nil && a.body > 0:
		return a.unread(b, unreadEncoded, "")
	case b.reader == nil:
		return a.unread(b, unreadMissing, "")
	}
	n, ok := b.reader.Sum()
	switch {
	case !ok:
		return max(a.unread(b, unreadMissing, ""), b.reader.Events())
	case a.cut: // whoever leaves before the last event does not know its number
		return max(n, b.reader.Events())
	}
	return n
}

// settle tells the limiter that the charge has cost so much in all.
func (a *answer) settle(b *bill, cost int64, last bool) {
	b.settled = last
	more := cost - b.spent // since it was settled last
	s := limit.Settlement{Source: b.charge.source, Taken: b.taken, Spent: more, Granted: a.granted}
	if !last && more <= b.taken {
		return // what was taken is enough so far
	}
	b.spent, b.taken = cost, 0
	b.charge.due.spent, b.charge.due.billed = cost, true
	if s.More() == 0 && b.charge.bucket.Ban == 0 {
		return
	}
	a.handler.settle(b.charge, b.who, s)
}

// settle has what a charge cost settled, by the rule that is in force now.
func (h *Handler) settle(c *charge, who *visitor, s limit.Settlement) {
	rules := h.app.knownRules()
	if rules.ignorant() {
		countLost(lostNotKnown)
		return
	}
	s.Bucket = c.bucket
	rule := rules.inForce(c.bucket.Key, c.zone.rule(who, rules))
	if rule.Mode == limit.Deny || rule.Mode == limit.Unlimited || max(rule.Algorithm, limit.TokenBucket) != max(c.bucket.Rule.Algorithm, limit.TokenBucket) {
		countLost(lostOtherRule)
		return
	}
	s.Bucket.Rule = rule
	s.Bucket.Cost = max(1, min(c.due.price, rule.Capacity))
	ended := *c // the request may be over, and its buffers in use again
	s.Ended = func(with limit.Settled) { h.app.settled(&ended, with) }
	h.app.limiter.Settle(s)
}

// settled counts what became of a settlement.
func (a *App) settled(c *charge, with limit.Settled) {
	if with.Lost != "" {
		countLost(with.Lost)
		return
	}
	if with.Cut > 0 {
		c.zone.counts.countCut(with.Cut)
	}
	if with.Banned > 0 {
		a.noteBan(c, with.Banned)
	}
}

// Interface guards
var (
	_ http.ResponseWriter = (*answer)(nil)
	_ io.ReaderFrom       = (*answer)(nil)
)
