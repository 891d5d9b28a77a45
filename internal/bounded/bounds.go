package bounded

import (
	"slices"
	"sync"
)

// Bounds are the bounds that several users of one Map ask for, as the configs do
// that overlap in a reload. The newest that is not released is in force. The zero
// value is ready; it is safe for concurrent use.
type Bounds struct {
	mu    sync.Mutex
	asked []*int // unreleased, oldest first
}

// Add puts a bound in force by calling set with it. Its release puts the next
// older one in force, or 0, which is the default, where there is none; it changes
// nothing where a newer one is in force, or when it is called again. Set is not
// called by two at once.
func (b *Bounds) Add(most int, set func(most int)) (release func()) {
	mine := &most
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, mine)
	set(most)
	return func() { b.release(mine, set) }
}

// Len returns how many bounds are not released.
func (b *Bounds) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

func (b *Bounds) release(mine *int, set func(most int)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.asked, mine)
	if at < 0 {
		return
	}
	b.asked = slices.Delete(b.asked, at, at+1)
	switch {
	case at < len(b.asked): // a newer one is in force
	case at == 0:
		set(0)
	default:
		set(*b.asked[at-1])
	}
}
