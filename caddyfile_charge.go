package ratelimit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddygate/ratelimit/internal/block"
	"github.com/caddygate/ratelimit/internal/tally"
	"github.com/caddygate/ratelimit/limit"
)

// parseCharge reads `charge <kind> <value>… [on <route>]`.
func (h *Handler) parseCharge(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	var c Charge
	if n := len(args); n > 2 && args[n-2] == "on" {
		if c.Route = args[n-1]; !slices.Contains(h.routes(), c.Route) {
			return d.WrapErr(h.unknownRoute(c.Route))
		}
		args = args[:n-2]
	}
	if len(args) < 2 {
		return d.Err("charge needs a kind and a value: status <status>…, header <name>, json <path>…, bytes <n> or value <placeholder>")
	}
	kind, values := args[0], args[1:]
	if len(values) > 1 && kind != "status" && kind != "json" {
		return d.Errf("charge %s takes one value", block.Clipped(kind))
	}
	switch kind {
	case "status":
		c.Status = values
	case "header":
		c.Header = values[0]
	case "json":
		c.JSON = values
	case "bytes":
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil || n < 1 {
			return d.Errf("charge bytes: %q is no number of bytes: allowed are 1 to %d", block.Clipped(values[0]), int64(maxBytesPerToken))
		}
		c.Bytes = n
	case "value":
		c.Value = values[0]
	default:
		return d.WrapErr(limit.UnknownWord("kind of charge", kind, "status", "header", "json", "bytes", "value"))
	}
	if _, err := newMeter(&c); err != nil {
		return d.WrapErr(err)
	}
	for _, other := range h.Charge {
		if other.Route == c.Route {
			return d.Err("the option charge is given twice for the same route")
		}
	}
	h.Charge = append(h.Charge, c)
	return nil
}

// unknownRoute is the error of an option that is for a route of another directive.
func (h *Handler) unknownRoute(route string) error {
	return fmt.Errorf("%q is not a route of this directive: allowed are %s", block.Clipped(route), strings.Join(h.routes(), ", "))
}

// parseUnread reads `unread <n>`, which is for every charge of the directive.
func (h *Handler) parseUnread(d *caddyfile.Dispenser) error {
	n, err := block.OneArg(d)
	if err != nil {
		return err
	}
	unread, found := tally.Number(n)
	if !found || unread > limit.MaxCapacity {
		return d.Errf("unread: %q is out of bounds: allowed are 0 to %d", block.Clipped(n), limit.MaxCapacity)
	}
	h.unread = &unread
	return nil
}

// parseCost reads `cost <number>|<placeholder> [on <route>]`.
func (h *Handler) parseCost(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 && (len(args) != 3 || args[1] != "on") {
		return d.Err("cost needs a number or a placeholder, and takes `on <route>` behind it")
	}
	if _, err := newCostSource(args[0]); err != nil {
		return d.WrapErr(err)
	}
	if len(args) == 1 {
		if h.Cost != "" {
			return d.Err("the option cost is given twice")
		}
		h.Cost = args[0]
		return nil
	}
	h.Costs = append(h.Costs, Cost{Route: args[2], Cost: args[0]})
	_, err := h.priceOf(args[2])
	if !slices.Contains(h.routes(), args[2]) {
		err = h.unknownRoute(args[2])
	}
	return block.Located(d, err)
}

// afterBlock completes what options say together, when all of them have been read.
func (h *Handler) afterBlock(d *caddyfile.Dispenser) error {
	if h.unread == nil {
		return nil
	}
	if len(h.Charge) == 0 {
		return d.Err("unread: it is for `charge`, which is not here")
	}
	for i := range h.Charge {
		h.Charge[i].Unread = h.unread
	}
	return nil
}
