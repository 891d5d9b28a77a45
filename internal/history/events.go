package history

import (
	"sync"
	"time"
)

// MaxEvents is how many events are kept.
const MaxEvents = 200

// Event is a change of state.
type Event struct {
	// Number counts the events, from 1.
	Number int64

	// At is when it was told.
	At time.Time

	// Name and Data are those of Caddy's event. Data is not changed any more.
	Name string
	Data map[string]any
}

// Events is a ring of the last changes of state.
type Events struct {
	mu     sync.Mutex
	last   int64
	events [MaxEvents]Event
}

// Add keeps an event.
func (e *Events) Add(now time.Time, name string, data map[string]any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	e.events[e.last%MaxEvents] = Event{e.last, now, name, data}
}

// After returns the events that are kept and come after a number, the oldest first,
// and the number of the last one that there was.
func (e *Events) After(number int64) (list []Event, last int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := max(number+1, e.last-MaxEvents+1, 1); n <= e.last; n++ {
		list = append(list, e.events[n%MaxEvents])
	}
	return list, e.last
}
