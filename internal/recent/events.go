package recent

import (
	"sync"
	"time"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// Kept is how many changes of state are kept.
const Kept = 200

// Events keeps the last changes of state, with numbers from 1.
type Events struct {
	mu   sync.Mutex
	last int64
	ring [Kept]adminapi.Event
}

// Note keeps a change. Its data is copied, with durations in words.
func (e *Events) Note(now time.Time, name string, data map[string]any) {
	told := make(map[string]any, len(data))
	for key, value := range data {
		if d, is := value.(time.Duration); is {
			value = d.Round(time.Millisecond).String()
		}
		told[key] = value
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	e.ring[e.last%Kept] = adminapi.Event{Number: e.last, At: now.UTC().Round(time.Millisecond), Event: name, Data: told}
}

// After returns the changes after the one with a number, or all that are kept where
// that is 0, or one of an earlier process.
func (e *Events) After(number int64) *adminapi.Events {
	e.mu.Lock()
	defer e.mu.Unlock()
	if number > e.last {
		number = 0
	}
	first := max(number+1, e.last-Kept+1, 1)
	answer := &adminapi.Events{Last: e.last, Events: make([]adminapi.Event, 0, e.last-first+1)}
	if number > 0 {
		answer.Lost = first - number - 1
	}
	for n := first; n <= e.last; n++ {
		answer.Events = append(answer.Events, e.ring[n%Kept])
	}
	return answer
}
