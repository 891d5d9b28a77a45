package bounded

import "hash/maphash"

// Fingerprint stands for a name: 128 bits of hash under two random seeds. Names
// themselves would cost the memory of every made-up one, the garbage collector's
// time, and a cache miss a call. Nobody outside can choose names that collide, and
// by chance two of a million do so about once in 10²⁶ processes.
type Fingerprint [2]uint64

// hash is enough of f to spread fingerprints by.
func (f Fingerprint) hash() uint64 { return f[0] }

// Fingerprints makes the fingerprints of the keys of one Map, or of several that are
// asked together. Make one with NewFingerprints.
type Fingerprints struct {
	seeds [2]maphash.Seed
}

// NewFingerprints returns Fingerprints with seeds of their own.
func NewFingerprints() Fingerprints {
	return Fingerprints{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
}

// Of returns the fingerprint of a name.
func (f *Fingerprints) Of(name []byte) Fingerprint {
	return Fingerprint{maphash.Bytes(f.seeds[0], name), maphash.Bytes(f.seeds[1], name)}
}
