package localbucket

import "sort"

// taken is tokens that were taken at one instant.
type taken struct {
	at   int64 // in µs of the store's clock
	upTo int64 // these and all that were taken before them, ever
}

// leastPlaces is the size of a ring that has outgrown its first place.
const leastPlaces = 4

// ring is what a log holds, oldest first, in a slice that is used again: at
// most one entry a token, in 16 bytes. The zero value is empty.
type ring struct {
	slots []taken
	head  int32 // where the oldest is
	size  int32
	gone  int64 // upTo of the entry before the oldest
}

// get returns entry i, counted from the oldest.
func (r *ring) get(i int32) *taken {
	at := int(r.head) + int(i)
	if at >= len(r.slots) {
		at -= len(r.slots)
	}
	return &r.slots[at]
}

func (r *ring) newest() *taken {
	return r.get(r.size - 1)
}

// firstAfter returns the oldest entry that is younger than at; size where none is.
func (r *ring) firstAfter(at int64) int32 {
	return int32(sort.Search(int(r.size), func(i int) bool { return r.get(int32(i)).at > at }))
}

// holding returns the entry that holds token n, counted from 1 and the first ever.
func (r *ring) holding(n int64) *taken {
	return r.get(int32(sort.Search(int(r.size)-1, func(i int) bool { return r.get(int32(i)).upTo >= n })))
}

// before returns how many tokens had been taken, ever, before entry i.
func (r *ring) before(i int32) int64 {
	if i == 0 {
		return r.gone
	}
	return r.get(i - 1).upTo
}

// drop forgets the n oldest entries, and gives back room that is no more needed.
func (r *ring) drop(n int32) {
	r.gone = r.before(n)
	r.size -= n
	r.head = (r.head + n) % max(1, int32(len(r.slots)))
	if len(r.slots) > leastPlaces && int(r.size) < len(r.slots)/4 {
		r.move(max(leastPlaces, 2*int(r.size)))
	}
}

// add notes that n tokens were taken at a time, which may be before the newest
// where the clock was set back a little. It makes room for most entries at most.
func (r *ring) add(at, n, most int64) {
	i := r.firstAfter(at)
	if i > 0 && r.get(i-1).at == at {
		i--
	} else {
		r.open(i, at, most)
	}
	for ; i < r.size; i++ {
		r.get(i).upTo += n
	}
}

// giveBack takes up to n tokens out of entry i, and the entry with the last of them. It
// returns how many.
func (r *ring) giveBack(i int32, n int64) int64 {
	held := r.get(i).upTo - r.before(i)
	n = min(n, held)
	for j := i; j < r.size; j++ {
		r.get(j).upTo -= n
	}
	if n == held {
		for j := i; j < r.size-1; j++ {
			*r.get(j) = *r.get(j + 1)
		}
		r.size--
	}
	return n
}

// open makes an empty entry at place i.
func (r *ring) open(i int32, at, most int64) {
	if int(r.size) == len(r.slots) {
		r.grow(int(most))
	}
	r.size++
	for j := r.size - 1; j > i; j-- {
		*r.get(j) = *r.get(j - 1)
	}
	*r.get(i) = taken{at: at, upTo: r.before(i)}
}

// grow doubles the room, up to most places.
func (r *ring) grow(most int) {
	wanted := 1
	if len(r.slots) > 0 {
		wanted = min(max(leastPlaces, 2*len(r.slots)), max(most, len(r.slots)+1))
	}
	r.move(wanted)
}

// move copies the entries to a slice of so many places.
func (r *ring) move(places int) {
	slots := make([]taken, places)
	for i := range r.size {
		slots[i] = *r.get(i)
	}
	r.slots, r.head = slots, 0
}
