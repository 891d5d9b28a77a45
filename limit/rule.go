package limit

import (
	"fmt"
	"math"
	"time"
)

// The bounds that every rule is held to, wherever it comes from.
const (
	// MaxCapacity is the largest capacity of a rule.
	MaxCapacity = math.MaxInt32
	// MaxLogCapacity is the largest capacity under SlidingWindowLog, which
	// stores one entry for each request it admits.
	MaxLogCapacity = 100_000
	// MaxWindow is the longest window of a rule: ten years of 365 days.
	MaxWindow = 10 * 365 * 24 * time.Hour
	// MaxWait is the longest wait of a State: until a counter's two windows are over.
	MaxWait = 2 * MaxWindow
	// MaxPrefetch is the most tokens that a rule may have taken ahead.
	MaxPrefetch = 100_000
	// MaxShards is the most parts that a bucket may be split into.
	MaxShards = 16
)

// The values of Rule.Prefetch that are not a number of tokens.
const (
	// PrefetchOff takes no tokens ahead.
	PrefetchOff int32 = -1
	// PrefetchAuto takes tokens ahead as the measured demand asks for.
	PrefetchAuto int32 = -2
)

// Algorithm is how a bucket counts. The zero value means that the rule names
// none and the handler's counts.
type Algorithm uint8

// The algorithms; their numbers are those of the Redis script's protocol.
const (
	// TokenBucket gives up to the capacity at once and refills steadily.
	TokenBucket Algorithm = iota + 1
	// SlidingWindowLog admits at most the capacity in any window, exactly.
	SlidingWindowLog
	// SlidingWindowCounter weighs two counters, at the cost of two numbers a key.
	SlidingWindowCounter
)

// String returns the word for the algorithm that configuration and tables use.
func (a Algorithm) String() string {
	switch a {
	case TokenBucket:
		return "token_bucket"
	case SlidingWindowLog:
		return "sliding_window_log"
	case SlidingWindowCounter:
		return "sliding_window_counter"
	default:
		return ""
	}
}

// ParseAlgorithm reads the word for an algorithm. The error lists those allowed.
func ParseAlgorithm(word string) (Algorithm, error) {
	for a := TokenBucket; a <= SlidingWindowCounter; a++ {
		if word == a.String() {
			return a, nil
		}
	}
	return 0, UnknownWord("algorithm", word, TokenBucket.String(), SlidingWindowLog.String(), SlidingWindowCounter.String())
}

// Mode is what a rule's decision means for the request. The zero value means
// that the rule names none and the handler's counts.
type Mode uint8

// The modes of a rule.
const (
	// Enforce refuses what the bucket refuses.
	Enforce Mode = iota + 1
	// Shadow decides and counts, but never refuses.
	Shadow
	// Unlimited lets everything pass and asks no bucket.
	Unlimited
	// Deny lets nothing pass and asks no bucket.
	Deny
)

// String returns the word for the mode that configuration and tables use.
func (m Mode) String() string {
	switch m {
	case Enforce:
		return "enforce"
	case Shadow:
		return "shadow"
	case Unlimited:
		return "unlimited"
	case Deny:
		return "deny"
	default:
		return ""
	}
}

// ParseMode reads the word for a mode. The error lists those allowed.
func ParseMode(word string) (Mode, error) {
	for m := Enforce; m <= Deny; m++ {
		if word == m.String() {
			return m, nil
		}
	}
	return 0, UnknownWord("mode", word, Enforce.String(), Shadow.String(), Unlimited.String(), Deny.String())
}

// Rule is how much one tenant may ask of one route. One pair of numbers defines
// every algorithm: the capacity, and the refill that fills it in one window. A
// Rule is comparable and is made by NewRule.
type Rule struct {
	// Capacity is how many tokens the bucket holds when full.
	Capacity int64
	// Refill is how many tokens come back per second.
	Refill float64
	// WindowMillis is Capacity / Refill, rounded to whole milliseconds.
	WindowMillis int64
	// Prefetch is how many tokens may be taken ahead: a number, PrefetchOff or
	// PrefetchAuto; 0 means that the rule names none.
	Prefetch int32
	// Algorithm is how the bucket counts; 0 means that the rule names none.
	Algorithm Algorithm
	// Mode is what a refusal means; 0 means that the rule names none.
	Mode Mode
	// Shards is into how many parts the bucket is split; 0 means that the rule
	// names none, 1 that it is whole.
	Shards uint8
	// Concurrent is how many requests may run at once, beside what the bucket gives; 0
	// means that the rule names no number.
	Concurrent int64
}

// NewRule checks r against the bounds and returns it with WindowMillis computed.
// An error names the field that is out of bounds, and what is allowed.
func NewRule(r Rule) (Rule, error) {
	maxCapacity := int64(MaxCapacity)
	if r.Algorithm == SlidingWindowLog {
		maxCapacity = MaxLogCapacity
	}
	if r.Capacity < 1 || r.Capacity > maxCapacity {
		return Rule{}, fmt.Errorf("capacity %d is out of bounds: allowed are 1 to %d", r.Capacity, maxCapacity)
	}
	if math.IsNaN(r.Refill) || math.IsInf(r.Refill, 0) || r.Refill <= 0 {
		return Rule{}, fmt.Errorf("refill_per_second %v is out of bounds: it must be a finite number above 0", r.Refill)
	}
	window := math.Round(float64(r.Capacity) / r.Refill * 1000)
	if window < 1 || window > float64(MaxWindow.Milliseconds()) {
		return Rule{}, fmt.Errorf("capacity %d at refill_per_second %v makes a window (capacity / refill_per_second) that is out of bounds: allowed are 1 ms to 10 years", r.Capacity, r.Refill)
	}
	r.WindowMillis = int64(window)
	return r, checkOptions(r)
}

func checkOptions(r Rule) error {
	switch {
	case r.Algorithm > SlidingWindowCounter:
		return fmt.Errorf("algorithm %d is unknown", r.Algorithm)
	case r.Mode > Deny:
		return fmt.Errorf("mode %d is unknown", r.Mode)
	case r.Prefetch < PrefetchAuto || r.Prefetch > MaxPrefetch:
		return fmt.Errorf("prefetch %d is out of bounds: allowed are 0 to %d, and auto", r.Prefetch, MaxPrefetch)
	case r.Shards > MaxShards:
		return fmt.Errorf("shards %d is out of bounds: allowed are 1 to %d", r.Shards, MaxShards)
	case r.Concurrent != 0:
		_, err := NewPlaces(r.Concurrent)
		return err
	}
	return nil
}

// Or returns r with everything it does not name (algorithm, mode, prefetch,
// shards, concurrent) taken from defaults. Capacity and refill are always r's own.
func (r Rule) Or(defaults Rule) Rule {
	if r.Algorithm == 0 {
		r.Algorithm = defaults.Algorithm
	}
	if r.Mode == 0 {
		r.Mode = defaults.Mode
	}
	if r.Prefetch == 0 {
		r.Prefetch = defaults.Prefetch
	}
	if r.Shards == 0 {
		r.Shards = defaults.Shards
	}
	if r.Concurrent == 0 {
		r.Concurrent = defaults.Concurrent
	}
	return r
}

// Share returns the part of r that one of n equal instances may give when they
// cannot ask each other: the capacity divided and rounded down, but at least 1.
// A token bucket refills at a share of the rate; the sliding windows keep their
// window. A rule that is too small to be divided admits more than its limit in
// all, never nothing. The window stays within MaxWindow.
func (r Rule) Share(n int64) Rule {
	if n <= 1 {
		return r
	}
	whole := r
	r.Capacity = max(1, whole.Capacity/n)
	if whole.Algorithm == TokenBucket || whole.Algorithm == 0 {
		r.Refill = max(whole.Refill/float64(n), float64(r.Capacity)/MaxWindow.Seconds())
		r.WindowMillis = max(1, int64(math.Round(float64(r.Capacity)/r.Refill*1000)))
		return r
	}
	r.Refill = float64(r.Capacity) * 1000 / float64(whole.WindowMillis)
	return r
}

// MinScale is the smallest part of a rule that Scale makes.
const MinScale = 1e-6

// Scale returns the part of r that one region gives of it: the capacity times
// share, rounded down, but at least 1. A token bucket refills at that share of
// the rate; the sliding windows keep their window. A share from 1 up, or one
// that is not a number, is the whole rule, and one below MinScale counts as
// that. The window stays within MaxWindow. It does not allocate.
func (r Rule) Scale(share float64) Rule {
	if !(share < 1) {
		return r
	}
	share = max(share, MinScale)
	whole := r
	// The addend takes back what the product lacks of a whole number: 100 × 0.29
	// is 28.999999999999996.
	r.Capacity = max(1, int64(float64(whole.Capacity)*share+1e-6))
	if whole.Algorithm != TokenBucket && whole.Algorithm != 0 {
		r.Refill = float64(r.Capacity) * 1000 / float64(whole.WindowMillis)
		return r
	}
	r.Refill = max(whole.Refill*share, float64(r.Capacity)/MaxWindow.Seconds())
	r.WindowMillis = max(1, int64(math.Round(float64(r.Capacity)/r.Refill*1000)))
	return r
}

// clip shortens what a message quotes of foreign data.
func clip(word string) string {
	if len(word) > 64 {
		return word[:64] + "…"
	}
	return word
}
