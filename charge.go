package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/internal/tally"
	"github.com/caddygate/ratelimit/limit"
)

// Cost says what a request takes of one route.
type Cost struct {
	// The route that it is for. Required.
	Route string `json:"route,omitempty"`

	// How many tokens a request takes: a whole number from 1, or a placeholder.
	// Required.
	Cost string `json:"cost,omitempty"`
}

// Charge says what a request cost in the end, by its answer. The request takes its
// cost at its start, and the difference is settled when the answer is known. Exactly
// one of status, header, json, bytes and value is set.
type Charge struct {
	// The route of the handler that it is for. Default: each that has no charge of its
	// own.
	Route string `json:"route,omitempty"`

	// The statuses of answers that cost what was taken: such as `401`, `4xx`, or
	// `!5xx` for all others. Any other answer costs nothing.
	Status []string `json:"status,omitempty"`

	// The header of the answer that holds the cost, as a whole number.
	Header string `json:"header,omitempty"`

	// The places in a JSON answer whose numbers add up to the cost, such as
	// `usage.total_tokens`; `a|b` is the first of two that is there, and
	// `usage.output_tokens*4` counts four times. Of a stream of events or lines each
	// place's last number counts.
	JSON []string `json:"json,omitempty"`

	// How many bytes of the answer's body cost one token.
	Bytes int64 `json:"bytes,omitempty"`

	// A text with placeholders whose value is the cost when the answer has ended.
	Value string `json:"value,omitempty"`

	// What an answer costs that does not say it. Default: what was taken at the start.
	Unread *int64 `json:"unread,omitempty"`
}

// maxBytesPerToken bounds Charge.Bytes.
const maxBytesPerToken = 1 << 40

// meter is what an answer on one zone costs.
type meter struct {
	statuses []statusRange // nil: not by status
	header   string
	paths    []tally.Path
	bytes    int64
	value    *costSource
	unread   int64 // -1: what was taken
}

// statusRange is a range of statuses that counts, or that does not.
type statusRange struct {
	from, to int
	not      bool
}

// newMeter reads a charge. An error names the field.
func newMeter(c *Charge) (*meter, error) {
	kinds := 0
	for _, set := range []bool{len(c.Status) > 0, c.Header != "", len(c.JSON) > 0, c.Bytes != 0, c.Value != ""} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, errors.New("charge: one of status, header, json, bytes and value is needed, and no more")
	}
	m := &meter{header: http.CanonicalHeaderKey(c.Header), bytes: c.Bytes, unread: -1}
	if c.Unread != nil {
		if m.unread = *c.Unread; m.unread < 0 || m.unread > limit.MaxCapacity {
			return nil, fmt.Errorf("unread: %d is out of bounds: allowed are 0 to %d", m.unread, limit.MaxCapacity)
		}
	}
	var err error
	switch {
	case len(c.Status) > 0:
		m.statuses, err = parseStatuses(c.Status)
	case len(c.JSON) > 0:
		if m.paths, err = tally.ParsePaths(c.JSON); err != nil {
			err = fmt.Errorf("charge json: %w", err)
		}
	case c.Bytes < 0 || c.Bytes > maxBytesPerToken:
		err = fmt.Errorf("charge bytes: %d is out of bounds: allowed are 1 to %d", c.Bytes, int64(maxBytesPerToken))
	case c.Value != "":
		if !strings.Contains(c.Value, "{") {
			return nil, errors.New("charge value: a placeholder is needed, whose value is the cost when the answer has ended")
		}
		m.value = &costSource{template: c.Value}
		err = checkPlaceholders(c.Value)
	}
	return m, err
}

// parseStatuses reads 401, 4xx and !5xx.
func parseStatuses(words []string) ([]statusRange, error) {
	ranges := make([]statusRange, len(words))
	for i, word := range words {
		r := &ranges[i]
		text, not := strings.CutPrefix(word, "!")
		r.not = not
		if class, found := strings.CutSuffix(text, "xx"); found && len(class) == 1 && class >= "1" && class <= "5" {
			r.from = 100 * int(class[0]-'0')
			r.to = r.from + 99
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 || n > 599 {
			return nil, fmt.Errorf("charge status: %q is no status: allowed are 100 to 599, 1xx to 5xx, and ! before them for all others", block.Clipped(word))
		}
		if n == statusClientClosedRequest {
			return nil, errors.New("charge status: 499 is no answer: a request whose client left before its answer pays what was taken")
		}
		r.from, r.to = n, n
	}
	return ranges, nil
}

// charges reports whether an answer with the status costs what was taken.
func (m *meter) charges(status int) bool {
	others := true // whether what no range names counts
	for _, r := range m.statuses {
		inside := r.from <= status && status <= r.to
		if inside {
			return !r.not
		}
		others = others && r.not
	}
	return others
}

// early reports whether the cost is known when the answer's header is.
func (m *meter) early() bool { return m.statuses != nil || m.header != "" }

// words is the charge as the Caddyfile has it, without its route.
func (c *Charge) words() string {
	switch {
	case len(c.Status) > 0:
		return "status " + strings.Join(c.Status, " ")
	case c.Header != "":
		return "header " + c.Header
	case len(c.JSON) > 0:
		return "json " + strings.Join(c.JSON, " ")
	case c.Bytes > 0:
		return "bytes " + strconv.FormatInt(c.Bytes, 10)
	}
	return "value " + c.Value
}

// chargeOf returns the charge of a route, nil where it has none.
func (h *Handler) chargeOf(route string) (found *Charge) {
	for i := range h.Charge {
		switch h.Charge[i].Route {
		case route:
			return &h.Charge[i]
		case "":
			found = &h.Charge[i]
		}
	}
	return found
}

// meterOf returns what an answer on a route costs; nil: what was taken.
func (h *Handler) meterOf(route string) (*meter, error) {
	var own, all *Charge
	for i := range h.Charge {
		c := &h.Charge[i]
		into := &own
		switch c.Route {
		case route:
		case "":
			into = &all
		default:
			if !slices.Contains(h.routes(), c.Route) {
				return nil, fmt.Errorf("charge: %q is not a route of this handler: allowed are %s", block.Clipped(c.Route), strings.Join(h.routes(), ", "))
			}
			continue
		}
		if *into != nil {
			return nil, fmt.Errorf("charge: it is given twice for the route %q", route)
		}
		*into = c
	}
	if c := cmp.Or(own, all); c != nil {
		return newMeter(c)
	}
	return nil, nil
}

// priceOf returns what a request takes of a route where that is not the handler's
// cost; nil where it is.
func (h *Handler) priceOf(route string) (price *costSource, err error) {
	for i := range h.Costs {
		c := &h.Costs[i]
		if !slices.Contains(h.routes(), c.Route) {
			return nil, fmt.Errorf("costs: %q is not a route of this handler: allowed are %s", block.Clipped(c.Route), strings.Join(h.routes(), ", "))
		}
		if c.Route != route {
			continue
		}
		if price != nil {
			return nil, fmt.Errorf("costs: the route %q is given twice", route)
		}
		if c.Cost == "" {
			return nil, fmt.Errorf("costs: the cost of the route %q is missing", route)
		}
		source, err := newCostSource(c.Cost)
		if err != nil {
			return nil, err
		}
		h.warnOfPlaceholders("cost", source.template)
		price = &source
	}
	return price, nil
}

// provisionCharges gives the zones what the handler charges in the end, and refuses
// what does not go together.
func (h *Handler) provisionCharges() (err error) {
	if len(h.Charge) == 0 && h.Ban == nil && len(h.Costs) == 0 {
		return nil
	}
	ban, err := h.banTime()
	if err != nil {
		return err
	}
	for _, z := range h.zones {
		if z.price, err = h.priceOf(z.route); err != nil {
			return err
		}
		if z.meter, err = h.meterOf(z.route); err != nil {
			return err
		}
		if z.ban = ban; ban > 0 {
			z.banStatus = h.Ban.Status
		}
		if z.price != nil || z.meter != nil || ban > 0 {
			z.single = false // nothing is taken ahead, and the bucket is not split
		}
		if z.meter != nil && z.meter.statuses == nil && z.defaults.Algorithm == limit.SlidingWindowLog {
			return fmt.Errorf("charge: a sliding_window_log, as on the route %q, takes `charge status` only: what it granted cannot be made more", z.route)
		}
	}
	if h.Prefetch != "" && h.Prefetch != "0" || h.Shards > 1 {
		return errors.New("charge, ban and costs of one route do not go together with prefetch or shards: tokens that are taken ahead, or lie in parts, cannot be settled")
	}
	return nil
}

// reading tells whether the body of an answer is read.
func (m *meter) reading() bool { return m.paths != nil || m.bytes > 0 }

// due is what a request costs a bucket with a price or a meter of its own.
type due struct {
	price  int64 // what a unit costs
	taken  int64 // what it was asked for in the end
	spent  int64 // what the answer has cost so far, where it is billed
	billed bool  // something is known of what the answer cost
}

// take notes what the bucket is asked for, where the request's price is so much.
func (c *charge) take(price int64) int64 {
	if c.due == nil {
		return price
	}
	c.due.taken = cmp.Or(c.bucket.Cost, price)
	return c.due.taken
}

// costs returns what the request costs, and notes at the charges since from what it
// costs them. An error is as that of a cost.
func (h *Handler) costs(current *verdict, from int) (int64, error) {
	cost, err := h.cost.of(current.repl)
	if err != nil {
		return 0, err
	}
	current.cost = cost
	for i := from; i < len(current.charges); i++ {
		c := &current.charges[i]
		price := cost
		if c.zone.price != nil {
			if price, err = c.zone.price.of(current.repl); err != nil {
				return 0, err
			}
		}
		c.noteCost(price)
	}
	return cost, nil
}

// noteCost notes what the request costs at the charge's route.
func (c *charge) noteCost(price int64) {
	if c.isPlace() || c.zone.price == nil && c.zone.meter == nil {
		return
	}
	c.due = &due{price: price}
	if c.zone.price != nil {
		c.bucket.Cost = c.payable(price)
	}
	if c.bucket.Settles && price > c.bucket.Rule.Capacity {
		c.bucket.Cost = c.bucket.Rule.Capacity // what it cost in the end may be less
	}
}
