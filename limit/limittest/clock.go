package limittest

import (
	"sync/atomic"
	"testing"
	"time"
)

// Clock is a clock that stands still between calls of Advance. The zero value
// is ready and shows the Unix epoch. It is safe for concurrent use.
type Clock struct {
	now atomic.Int64
}

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	return time.Unix(0, c.now.Load())
}

// Advance makes d pass; it fits Fixture.Advance.
func (c *Clock) Advance(_ testing.TB, d time.Duration) {
	c.now.Add(int64(d))
}
