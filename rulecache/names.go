package rulecache

import (
	"hash/maphash"
	"strings"
)

// index finds numbers by a hash: open addressing over slots that hold a number
// plus one, or 0. Like all that a snapshot is made of it has no pointers, so that
// the garbage collector has nothing to follow however many rules there are.
type index struct {
	slots []uint32
	used  int
}

func newIndex(size int) index {
	slots := 8
	for slots*3 < size*4 {
		slots *= 2
	}
	return index{slots: make([]uint32, slots)}
}

// find returns the number for which same holds, and where it is; where there is
// none, it returns the slot that is free for it.
func (x *index) find(hash uint64, same func(n uint32) bool) (n uint32, slot uint64, found bool) {
	mask := uint64(len(x.slots) - 1)
	for slot = hash & mask; x.slots[slot] != 0; slot = (slot + 1) & mask {
		if n := x.slots[slot] - 1; same(n) {
			return n, slot, true
		}
	}
	return 0, slot, false
}

// put takes a free slot for a number, and makes room where slots become few: hash
// tells where the numbers belong.
func (x *index) put(slot uint64, n uint32, hash func(n uint32) uint64) {
	x.slots[slot] = n + 1
	if x.used++; x.used*4 < len(x.slots)*3 {
		return
	}
	old := x.slots
	x.slots = make([]uint32, 2*len(old))
	mask := uint64(len(x.slots) - 1)
	for _, number := range old {
		if number == 0 {
			continue
		}
		at := hash(number-1) & mask
		for x.slots[at] != 0 {
			at = (at + 1) & mask
		}
		x.slots[at] = number
	}
}

// names numbers texts, each kept once, one behind the other.
type names struct {
	seed  maphash.Seed
	text  strings.Builder
	ends  []uint64 // where each name ends in text
	index index
}

func newNames(size int) *names {
	return &names{seed: maphash.MakeSeed(), ends: make([]uint64, 0, size), index: newIndex(size)}
}

// get returns the name of that number. It does not allocate.
func (n *names) get(number uint32) string {
	start := uint64(0)
	if number > 0 {
		start = n.ends[number-1]
	}
	return n.text.String()[start:n.ends[number]]
}

// find returns the number of a name. It does not allocate.
func (n *names) find(name string) (uint32, bool) {
	number, _, found := n.index.find(maphash.String(n.seed, name), func(other uint32) bool { return n.get(other) == name })
	return number, found
}

// add returns the number of a name, which gets one where it has none.
func (n *names) add(name string) uint32 {
	number, slot, found := n.index.find(maphash.String(n.seed, name), func(other uint32) bool { return n.get(other) == name })
	if found {
		return number
	}
	number = uint32(len(n.ends))
	n.text.WriteString(name)
	n.ends = append(n.ends, uint64(n.text.Len()))
	n.index.put(slot, number, func(other uint32) uint64 { return maphash.String(n.seed, n.get(other)) })
	return number
}
