package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddygate/ratelimit/limit"
)

// costSource reads from a request how many tokens it takes.
type costSource struct {
	fixed    int64
	template string // where it is not fixed
}

var errCost = fmt.Errorf("the request's cost is not a whole number from 1 to %d", limit.MaxCapacity)

// newCostSource reads a number or a text with placeholders; blank is 1.
func newCostSource(text string) (costSource, error) {
	if text == "" {
		return costSource{fixed: 1}, nil
	}
	if strings.Contains(text, "{") {
		if err := checkPlaceholders(text); err != nil {
			return costSource{}, fmt.Errorf("cost: %w", err)
		}
		return costSource{template: text}, nil
	}
	n, err := parseCost(text)
	if err != nil {
		return costSource{}, errors.New("cost: allowed are a whole number from 1 to 2147483647 and a placeholder")
	}
	return costSource{fixed: n}, nil
}

// of returns the request's cost. An error is the client's fault, or that of the
// handler that set the placeholder, and nothing is charged for it.
func (c *costSource) of(repl *caddy.Replacer) (int64, error) {
	if c.template == "" {
		return c.fixed, nil
	}
	return parseCost(strings.TrimSpace(repl.ReplaceAll(c.template, "")))
}

func parseCost(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > limit.MaxCapacity {
		return 0, errCost
	}
	return n, nil
}
