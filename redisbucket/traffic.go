package redisbucket

import (
	"sync/atomic"
	"time"
)

// Traffic counts what a Node has asked Redis since it was made.
type Traffic struct {
	// Entries is how many entries the answered script calls held. Requests that
	// ask for the same are one entry; a call holds 1 to 64.
	Entries uint64

	// Calls counts the answered script calls by how long their round trip took:
	// Calls[i] are those that took at most RoundTripBounds()[i], but longer than
	// the bound before; the last element is those beyond all bounds.
	Calls [RoundTrips]uint64

	// Seconds is how long all of those took together.
	Seconds float64
}

// RoundTrips is the number of classes that round trips are counted in.
const RoundTrips = 11

// RoundTripBounds returns the upper bounds of all classes of round trips but the
// last, which has none. They are close where decisions still wait.
func RoundTripBounds() [RoundTrips - 1]time.Duration {
	const us, ms = time.Microsecond, time.Millisecond
	return [...]time.Duration{100 * us, 250 * us, 500 * us, ms, 2 * ms, 3 * ms, 5 * ms, 10 * ms, 50 * ms, 250 * ms}
}

// traffic is what a Traffic is read from. Senders write it without a lock.
type traffic struct {
	entries atomic.Uint64
	calls   [RoundTrips]atomic.Uint64
	nanos   atomic.Int64
}

// note counts an answered script call.
func (t *traffic) note(entries int, took time.Duration) {
	class := RoundTrips - 1
	for i, bound := range RoundTripBounds() {
		if took <= bound {
			class = i
			break
		}
	}
	t.calls[class].Add(1)
	t.entries.Add(uint64(entries))
	t.nanos.Add(int64(took))
}

func (t *traffic) read() Traffic {
	read := Traffic{Entries: t.entries.Load(), Seconds: time.Duration(t.nanos.Load()).Seconds()}
	for i := range t.calls {
		read.Calls[i] = t.calls[i].Load()
	}
	return read
}
