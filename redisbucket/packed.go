package redisbucket

import (
	"encoding"
	"encoding/binary"
	"math"

	"github.com/caddygate/ratelimit/limit"
)

// argument is an argument of a command: the name of a key, or an entry.
type argument struct{ text []byte }

// MarshalBinary returns the text.
func (a *argument) MarshalBinary() ([]byte, error) { return a.text, nil }

// packed is what the script is told, an argument for each of its entries, in the
// layout of the header of take.lua.
type packed struct {
	numbers   []byte
	arguments []argument // parts of numbers
}

// reset drops what was packed.
func (p *packed) reset() { p.numbers, p.arguments = p.numbers[:0], p.arguments[:0] }

// add packs an entry: as one of the script's or, where its keys are asked apart, as
// one for each of them.
func (p *packed) add(e *entry) {
	w := e.first
	for k := 0; k < len(w.rules); k += w.together() {
		begin := len(p.numbers)
		p.append(float64(w.together()), float64(w.cost), float64(e.count))
		for i := range w.rules[k : k+w.together()] {
			rule := &w.rules[k+i]
			algorithm := max(rule.Algorithm, limit.TokenBucket)
			p.append(float64(algorithm), float64(rule.Capacity), rule.Refill, float64(rule.WindowMillis))
		}
		p.arguments = append(p.arguments, argument{p.numbers[begin:]})
	}
}

func (p *packed) append(numbers ...float64) {
	for _, number := range numbers {
		p.numbers = binary.LittleEndian.AppendUint64(p.numbers, math.Float64bits(number))
	}
}

// Interface guards.
var _ encoding.BinaryMarshaler = (*argument)(nil)
