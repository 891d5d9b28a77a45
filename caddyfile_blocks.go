package ratelimit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddygate/ratelimit/limit"
)

// option is one line of a block. Without parse it has its place in the syntax,
// but is not built yet.
type option struct {
	parse   func(*caddyfile.Dispenser) error
	repeats bool
}

// parseBlock reads the options of one block, each by its own parser. An option
// that is unknown, not built yet, or there twice is an error.
func parseBlock(d *caddyfile.Dispenser, options map[string]option) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		known, ok := options[name]
		switch {
		case !ok && strings.Contains(name, "://"):
			return d.Err("an address stands where an option should")
		case !ok:
			return d.Errf("unknown option %q: %s", clipped(name), allowedHere(name, slices.Sorted(maps.Keys(options))))
		case seen[name] && !known.repeats:
			return d.Errf("the option %s stands here twice", name)
		}
		seen[name] = true
		if err := known.parse(d); err != nil {
			return err
		}
	}
	return nil
}

// allowedHere lists the names that are known, and suggests the one that was
// probably meant.
func allowedHere(name string, known []string) string {
	return "allowed here are " + strings.Join(known, ", ") + limit.DidYouMean(name, known...)
}

// oneArg reads an option's only argument.
func oneArg(d *caddyfile.Dispenser) (string, error) {
	name, args := d.Val(), d.RemainingArgs()
	if len(args) != 1 {
		// ArgErr would quote the last argument, which may be a part of a secret.
		return "", d.Errf("wrong argument count: %s takes one", name)
	}
	return args[0], nil
}

// anyText reads any one argument into dst.
func anyText(dst *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) (err error) {
		*dst, err = oneArg(d)
		if err == nil && *dst == "" {
			return d.Err("the value is empty")
		}
		return err
	}
}

// flag sets dst and takes no argument.
func flag(dst *bool) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return d.ArgErr()
		}
		*dst = true
		return nil
	}
}

// words reads one of the words that an option allows.
type words struct {
	dst     *string
	allowed []string
}

func word(dst *string, allowed ...string) words { return words{dst: dst, allowed: allowed} }

func (w words) read(d *caddyfile.Dispenser) error {
	name := d.Val()
	value, err := oneArg(d)
	if err != nil {
		return err
	}
	if !slices.Contains(w.allowed, value) {
		return d.WrapErr(fmt.Errorf("%s: %w", name, limit.UnknownWord("word", value, w.allowed...)))
	}
	*w.dst = value
	return nil
}

// integer reads a whole number within the bounds into dst.
func integer(dst *int, within bounds[int]) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := oneArg(d)
		if err != nil {
			return err
		}
		*dst, err = parseInteger(name, value, within)
		return located(d, err)
	}
}

// duration reads a duration within the bounds into dst.
func duration(dst *caddy.Duration, within bounds[time.Duration]) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := oneArg(d)
		if err != nil {
			return err
		}
		parsed, err := parseDuration(name, value, within)
		*dst = caddy.Duration(parsed)
		return located(d, err)
	}
}

// located adds the file and the line to an error.
func located(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

func parseInteger(name, value string, within bounds[int]) (int, error) {
	parsed, err := strconv.Atoi(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a whole number: allowed are %d to %d", name, clipped(value), within.min, within.max)
	}
	return parsed, within.check(name, parsed)
}

func parseDuration(name, value string, within bounds[time.Duration]) (time.Duration, error) {
	parsed, err := caddy.ParseDuration(value)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a duration with a unit, such as 5ms or 30s", name, clipped(value))
	}
	return parsed, within.check(name, parsed)
}

// parseQuota reads `<n>/<unit> [burst <n>]`: the capacity and the refill.
func parseQuota(d *caddyfile.Dispenser) (capacity int64, refill float64, err error) {
	if !d.NextArg() {
		return 0, 0, d.ArgErr()
	}
	capacity, refill, err = limit.ParseRate(d.Val())
	if err != nil {
		return 0, 0, d.WrapErr(err)
	}
	if d.NextArg() {
		if d.Val() != "burst" {
			d.Prev()
		} else if capacity, err = parseBurst(d); err != nil {
			return 0, 0, err
		}
	}
	if _, err := limit.NewRule(limit.Rule{Capacity: capacity, Refill: refill}); err != nil {
		return 0, 0, d.WrapErr(err)
	}
	return capacity, refill, nil
}

func parseBurst(d *caddyfile.Dispenser) (int64, error) {
	if !d.NextArg() {
		return 0, d.ArgErr()
	}
	burst, err := strconv.ParseInt(d.Val(), 10, 64)
	if err != nil || burst < 1 || burst > limit.MaxCapacity {
		return 0, d.Errf("burst %q is not a whole number from 1 to %d", d.Val(), limit.MaxCapacity)
	}
	return burst, nil
}
