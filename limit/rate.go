package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseRate reads a rate as configuration writes it: `<n>/<unit>`, where n is a
// whole number from 1 to MaxCapacity and the unit is s, m, h, d or a duration
// (`100/10s`, `1/1000s`). It returns n and the refill in tokens per second.
func ParseRate(text string) (n int64, refill float64, err error) {
	count, unit, found := strings.Cut(text, "/")
	if !found {
		return 0, 0, fmt.Errorf("rate %q is not of the form <n>/<unit>, such as 100/s, 5/m or 100/10s", clip(text))
	}
	n, err = strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 || n > MaxCapacity || count[0] == '+' {
		return 0, 0, fmt.Errorf("rate %q must begin with a whole number from 1 to %d", clip(text), MaxCapacity)
	}
	period, err := parsePeriod(unit)
	if err != nil {
		return 0, 0, fmt.Errorf("rate %q: %w", clip(text), err)
	}
	return n, float64(n) / period.Seconds(), nil
}

func parsePeriod(unit string) (time.Duration, error) {
	switch unit {
	case "s":
		return time.Second, nil
	case "m":
		return time.Minute, nil
	case "h":
		return time.Hour, nil
	case "d":
		return 24 * time.Hour, nil
	}
	if days, found := strings.CutSuffix(unit, "d"); found {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n < 1 || n > int64(MaxWindow/(24*time.Hour)) {
			return 0, fmt.Errorf("the number of days in %q must be a whole number from 1 to %d", clip(unit), MaxWindow/(24*time.Hour))
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	period, err := time.ParseDuration(unit)
	if err != nil || period <= 0 {
		return 0, fmt.Errorf("the unit %q is not s, m, h, d or a duration above 0, such as 10s", clip(unit))
	}
	return period, nil
}
