package headers

import (
	"strconv"
	"time"
)

// WholeSeconds rounds up, so that who waits that long has waited enough.
func WholeSeconds(d time.Duration) int64 { return RoundedUp(d, time.Second) }

// RoundedUp is how many whole units a wait takes. It does not overflow.
func RoundedUp(d, unit time.Duration) int64 {
	units := int64(d / unit)
	if d%unit > 0 {
		units++
	}
	return units
}

// numbers are the texts of the numbers that headers mostly hold.
//
//nolint:gochecknoglobals // a table that is made once and only read
var numbers = func() (texts [1024]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

// Number is n in decimal digits. The small ones allocate nothing.
func Number(n int64) string {
	if n >= 0 && n < int64(len(numbers)) {
		return numbers[n]
	}
	return strconv.FormatInt(n, 10)
}

// Reset returns the value of X-RateLimit-Reset for a bucket that is full
// again after a time: the seconds until then, or with epoch the Unix time of
// then by this gateway's clock. Either is rounded up, so that a client that
// waits for it finds the bucket full.
func Reset(epoch bool, now time.Time, after time.Duration) int64 {
	after = max(0, after)
	if !epoch {
		return WholeSeconds(after)
	}
	full := now.Add(after)
	if full.Nanosecond() > 0 {
		return full.Unix() + 1
	}
	return full.Unix()
}
