// Package block reads blocks of a Caddyfile, and the texts and numbers of a
// configuration, with errors that say what is allowed. It is shared with the modules
// beside this one. Open block.go first, for the options of a block; value.go has what
// JSON needs, too.
package block

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

// Option is one line of a block.
type Option struct {
	// Parse reads the option, which the dispenser stands at.
	Parse func(*caddyfile.Dispenser) error

	// Repeats says that it may be there several times. Default: false.
	Repeats bool
}

// Parse reads the options of one block, each by its own parser. An option
// that is unknown or there twice is an error.
func Parse(d *caddyfile.Dispenser, options map[string]Option) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		known, ok := options[name]
		switch {
		case !ok && strings.Contains(name, "://"):
			return d.Err("an address stands where an option should")
		case !ok:
			return d.Errf("unknown option %q: %s", Clipped(name), Allowed(name, slices.Sorted(maps.Keys(options))))
		case seen[name] && !known.Repeats:
			return d.Errf("the option %s is given twice", name)
		}
		seen[name] = true
		if err := known.Parse(d); err != nil {
			return err
		}
	}
	return nil
}

// Allowed lists the names that are known, and suggests the one that was
// probably meant.
func Allowed(name string, known []string) string {
	return "allowed here are " + strings.Join(known, ", ") + limit.DidYouMean(name, known...)
}

// OneArg reads an option's only argument.
func OneArg(d *caddyfile.Dispenser) (string, error) {
	name, args := d.Val(), d.RemainingArgs()
	if len(args) != 1 {
		// ArgErr would quote the last argument, which may be a part of a secret.
		return "", d.Errf("wrong argument count: %s takes one", name)
	}
	return args[0], nil
}

// Text reads any one argument into dst.
func Text(dst *string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) (err error) {
		*dst, err = OneArg(d)
		if err == nil && *dst == "" {
			return d.Err("the value is empty")
		}
		return err
	}
}

// Flag sets dst and takes no argument.
func Flag(dst *bool) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return d.ArgErr()
		}
		*dst = true
		return nil
	}
}

// Word reads one of the words that an option allows into dst.
func Word(dst *string, allowed ...string) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := OneArg(d)
		if err != nil {
			return err
		}
		if !slices.Contains(allowed, value) {
			return d.WrapErr(fmt.Errorf("%s: %w", name, limit.UnknownWord("word", value, allowed...)))
		}
		*dst = value
		return nil
	}
}

// Integer reads a whole number within the bounds into dst.
func Integer(dst *int, within Bounds[int]) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := OneArg(d)
		if err != nil {
			return err
		}
		*dst, err = ParseInteger(name, value, within)
		return Located(d, err)
	}
}

// Duration reads a duration within the bounds into dst.
func Duration(dst *caddy.Duration, within Bounds[time.Duration]) func(*caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		name := d.Val()
		value, err := OneArg(d)
		if err != nil {
			return err
		}
		parsed, err := ParseDuration(name, value, within)
		*dst = caddy.Duration(parsed)
		return Located(d, err)
	}
}

// Located adds the file and the line to an error.
func Located(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// Rate reads `<n>/<unit> [burst <n>]`: the capacity, and the refill per second.
func Rate(d *caddyfile.Dispenser) (capacity int64, refill float64, err error) {
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

// TLS is where the options of a block `tls` go.
type TLS struct{ CA, Cert, Key, ServerName *string }

// Parse reads the block.
func (t TLS) Parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return Parse(d, map[string]Option{
		"ca":          {Parse: Text(t.CA)},
		"cert":        {Parse: Text(t.Cert)},
		"key":         {Parse: Text(t.Key)},
		"server_name": {Parse: Text(t.ServerName)},
	})
}
