package main

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is one measurement of one cell.
type sample struct {
	shot
	reading
	flood      bool
	unexpected int64 // requests that did not end as they should have
}

// rate is the answers per second that are measured: those that refuse, in a flood.
func (s sample) rate() float64 {
	if s.flood {
		return float64(s.statuses) / s.took.Seconds()
	}
	return float64(s.requests) / s.took.Seconds()
}

// admitted is the requests per second that passed.
func (s sample) admitted() float64 { return float64(s.requests-s.statuses) / s.took.Seconds() }

// each is a part of what is counted, for one request.
func (s sample) each(whole float64) float64 { return whole / float64(s.requests) }

// localPart is the part of the requests that were decided in memory although there
// is a Redis.
func (s sample) localPart() float64 { return s.each(float64(s.local)) }

// unanswered is the part of the requests that were due and got no answer.
func (s sample) unanswered() float64 {
	if s.due == 0 {
		return 0 // wrk sends no more than are answered
	}
	return 1 - float64(s.requests)/float64(s.due)
}

// duePerSecond is how many requests were due, where they were at fixed times.
func (s sample) duePerSecond() float64 { return float64(s.due) / s.length.Seconds() }

// byRedis is how many requests a second were decided by Redis: by what ours counts,
// and by its calls where a gateway has one for each request.
func (s sample) byRedis() float64 {
	if s.counted {
		return float64(s.redis) / s.took.Seconds()
	}
	return s.callsPerSecond()
}

// openings is how often the breaker has opened, in all of them together.
func openings(samples []sample) (opened int64) {
	for _, s := range samples {
		opened += s.opened
	}
	return opened
}

// callsPerRequest is how many calls Redis had for each.
func (s sample) callsPerRequest() float64 { return s.each(float64(s.calls)) }

// gatewayMicros is the processor time of the gateway for each request.
func (s sample) gatewayMicros() float64 { return s.each(micros(s.gatewayCPU)) }

func (s sample) p50Millis() float64 { return micros(s.p50) / 1000 }
func (s sample) p99Millis() float64 { return micros(s.p99) / 1000 }

// callsPerSecond is how often Redis was asked.
func (s sample) callsPerSecond() float64 { return float64(s.calls) / s.took.Seconds() }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// median is the middle of the values, or between the two in the middle; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// of takes one figure of each sample.
func of(samples []sample, figure func(sample) float64) []float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return values
}

// paired is the median of the ratios of rates within the same round, so that what
// slows the machine for a while slows both.
func paired(over, under []sample) float64 { return pairedOf(over, under, sample.rate) }

// pairedOf is the same of another figure.
func pairedOf(over, under []sample, figure func(sample) float64) float64 {
	ratios := make([]float64, 0, len(over))
	for i := range min(len(over), len(under)) {
		if base := figure(under[i]); base > 0 {
			ratios = append(ratios, figure(over[i])/base)
		}
	}
	return median(ratios)
}

// added is the median of the differences within the same round.
func added(over, under []sample, figure func(sample) float64) float64 {
	differences := make([]float64, 0, len(over))
	for i := range min(len(over), len(under)) {
		differences = append(differences, figure(over[i])-figure(under[i]))
	}
	return median(differences)
}

// beyond is the median of the ratios of what two have more than a third, within
// the same round. A round in which the second has no more tells nothing.
func beyond(over, under, base []sample, figure func(sample) float64) (float64, bool) {
	var ratios []float64
	for i := range min(len(over), len(under), len(base)) {
		if more := figure(under[i]) - figure(base[i]); more > 0 {
			ratios = append(ratios, (figure(over[i])-figure(base[i]))/more)
		}
	}
	return median(ratios), len(ratios) > 0
}

// grouped writes a number with commas between the thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var parts []string
	for len(digits) > 3 {
		parts = append(parts, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	parts = append(parts, digits)
	slices.Reverse(parts)
	return sign + strings.Join(parts, ",")
}
