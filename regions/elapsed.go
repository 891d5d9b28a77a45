package regions

import "github.com/caddygate/ratelimit/limit"

// Elapsed is the key under which gateways report, as the demand of their region,
// for how long they have counted, in milliseconds. No route has that name.
//
// Each gateway reports in periods of its own, so that of steady demand one region
// may have told of more time than another when shares are reckoned. What is
// compared is therefore demand in equal times.
func Elapsed() limit.Key { return limit.Key{Tenant: "*", Route: "~elapsed"} }

// mostFactor bounds by how much demand is raised for time that was not told of: that
// of a region that has fallen silent is to fade, two reckonings later than it would.
const mostFactor = 4

// factors say by how much the demand of each region is raised, so that it is that of
// as long a time as the others'. A region that nobody tells anything of has none.
func (b *Books) factors() map[string]float64 {
	told, most := map[string]float64{}, 0.0
	for _, d := range b.Demands {
		if gateways := b.Gateways[d.Region]; d.Key == Elapsed() && gateways > 0 {
			told[d.Region] = d.Units / float64(gateways)
			most = max(most, told[d.Region])
		}
	}
	factors := map[string]float64{}
	for region, of := range told {
		if of > 0 {
			factors[region] = min(mostFactor, most/of)
		}
	}
	return factors
}
