package ratelimit

import (
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// parseRegion reads `region <name> <share>` or `region <name> auto` with its block.
func (a *App) parseRegion(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Err("region takes a name and a share from 0.01 to 1, such as eu 0.7, or a name and auto")
	}
	r := &Region{Name: args[0]}
	a.Region = r
	if !globalPlaceholder.MatchString(r.Name) { // else checked when its value is known
		if err := checkRegionName("region", r.Name); err != nil {
			return d.WrapErr(err)
		}
	}
	if args[1] != "auto" {
		share, err := parseShare(args[1])
		if err != nil {
			return d.WrapErr(err)
		}
		r.Share = &share
		if d.NextBlock(d.Nesting()) {
			return d.Err("a region with a share has no block: rebalance and valid are for auto")
		}
		return nil
	}
	r.Auto = true
	return parseBlock(d, map[string]option{
		"rebalance": {parse: r.parseRebalance},
		"valid":     {parse: duration(&r.Valid, validBounds)},
	})
}

func (r *Region) parseRebalance(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() == 1 && d.NextArg() {
		if d.Val() == "off" {
			r.RebalanceOff = true
			return nil
		}
		d.Prev()
	}
	return duration(&r.Rebalance, rebalanceBounds)(d)
}

func parseShare(text string) (float64, error) {
	share, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("region: %q is neither auto nor a share from %v to %v", text, minShare, maxShare)
	}
	return share, checkShare("region", share)
}
