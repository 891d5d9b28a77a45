package main

import (
	"fmt"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// margin is by how much a machine must do more than what is offered then: at its
// own limit, a load would tell of the machine.
const margin = 1.25

// probeParts are the rates that are tried, as parts of the one that is wanted.
var probeParts = [...]float64{1, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03} //nolint:gochecknoglobals // a table

// keepsUp reports whether this machine could offer the load and answer it with
// processor time to spare, so that next to nothing waited or ran out of time.
func (m *measured) keepsUp() bool {
	return m.unasked == 0 && m.errors == 0 && m.sinceDue[0] < time.Millisecond && m.sinceDue[1] < 5*time.Millisecond &&
		m.shares[limit.SourceLocal] < 0.0005
}

// findRate returns the highest of a few rates, up to most, that this machine can
// offer and answer with a margin: where there are few cores, the load, its twenty
// instances, Redis and the proxy all share them. The proxy adds nothing meanwhile,
// so that what a longer way does is not what the rate is chosen by. It reports
// whether even the lowest rate is too much.
func findRate(wanted, most float64, proxied bool) (rate float64, tooMuch bool, err error) {
	for _, part := range probeParts {
		if rate = wanted * part; rate > most {
			continue
		}
		s := scenario{
			name: fmt.Sprintf("probe of %.0f/s", rate*margin), mode: modes[0], perSecond: rate * margin,
			length: time.Second, proxied: proxied, traffic: zipfTraffic,
		}
		if proxied {
			s.name += " by the proxy"
		}
		m, err := s.run()
		if err != nil {
			return 0, false, fmt.Errorf("measuring the %s: %w", s.name, err)
		}
		fmt.Println(m.line())
		if m.keepsUp() {
			return rate, false, nil
		}
	}
	return rate, true, nil
}
