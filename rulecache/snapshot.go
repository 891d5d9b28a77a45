package rulecache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// maxRejections is how many rejected rows a snapshot remembers one by one.
const maxRejections = 20

// Snapshot is a set of rules as it was at one time. It never changes, so it is
// safe for concurrent use. A nil Snapshot is an empty one.
type Snapshot struct {
	rules      *ruleTable
	hash       string
	loadedAt   time.Time
	rejected   int
	rejections []Rejection
}

// Rejection is a row of the table that made no rule. It does not name the
// tenant, which may be a secret.
type Rejection struct {
	// ID is the row's id.
	ID string
	// Route is the row's route, where it could be read.
	Route string
	// Reason says what is wrong with the row and what would be right.
	Reason string
}

// NewSnapshot makes a snapshot of entries. Their rules are checked and completed
// by limit.NewRule. An error names the first pair that is wrong, or is given twice.
func NewSnapshot(entries []Entry) (*Snapshot, error) {
	b := newBuilder(len(entries))
	for _, entry := range entries {
		if err := entry.check(); err != nil {
			return nil, fmt.Errorf("rule for route %q: %w", entry.Route, err)
		}
		rule, err := limit.NewRule(entry.Rule)
		if err != nil {
			return nil, fmt.Errorf("rule for route %q: %w", entry.Route, err)
		}
		if b.rules.set(entry.Pair, rule) {
			return nil, fmt.Errorf("two rules are for one tenant and route %q", entry.Route)
		}
	}
	return b.snapshot(time.Time{}), nil
}

// Get returns the rule for exactly this pair; it knows no wildcards.
func (s *Snapshot) Get(tenant, route string) (limit.Rule, bool) {
	if s == nil || s.rules.len() == 0 {
		return limit.Rule{}, false
	}
	return s.rules.get(Pair{Tenant: tenant, Route: route})
}

// HasTenant reports whether there is any rule for exactly this tenant.
func (s *Snapshot) HasTenant(tenant string) bool {
	return s != nil && s.rules.hasTenant(tenant)
}

// Len returns the number of rules.
func (s *Snapshot) Len() int {
	if s == nil {
		return 0
	}
	return s.rules.len()
}

// Hash returns 32 hex digits that are equal for equal sets of rules, in every
// process and version of this format; "" for a nil Snapshot, because of rules that
// are not known nobody can tell whether they are equal.
func (s *Snapshot) Hash() string {
	if s == nil {
		return ""
	}
	return s.hash
}

// LoadedAt returns when the rules were read from PostgreSQL; it is zero for
// those that were not.
func (s *Snapshot) LoadedAt() time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.loadedAt
}

// Rejected returns how many rows of the table made no rule, and up to 20 of
// them. The slice is shared and must not be changed.
func (s *Snapshot) Rejected() (count int, reasons []Rejection) {
	if s == nil {
		return 0, nil
	}
	return s.rejected, s.rejections
}

// builder collects the rules of a snapshot.
type builder struct {
	rules      *ruleTable
	kept       map[Pair]struct{}
	rejected   int
	rejections []Rejection
}

func newBuilder(size int) *builder {
	return &builder{
		rules: newRuleTable(size),
		kept:  make(map[Pair]struct{}),
	}
}

// reject counts a row that makes no rule.
func (b *builder) reject(rejection Rejection) {
	b.rejected++
	if len(b.rejections) < maxRejections {
		b.rejections = append(b.rejections, rejection)
	}
}

// keep puts the rules of last in force for the pairs whose row is bad now.
func (b *builder) keep(last *Snapshot) {
	for pair := range b.kept {
		if rule, found := last.Get(pair.Tenant, pair.Route); found {
			b.rules.set(pair, rule)
		}
	}
}

// snapshot makes the snapshot of what was collected; b is of no use afterwards.
func (b *builder) snapshot(loadedAt time.Time) *Snapshot {
	s := &Snapshot{
		rules: b.rules, loadedAt: loadedAt,
		rejected: b.rejected, rejections: b.rejections,
	}
	var sum digest
	for pair, rule := range b.rules.all() {
		sum.add(pair, rule)
	}
	s.hash = sum.String()
	return s
}

// digest is a sum of hashes, one of each rule, so that it needs no order.
type digest struct{ high, low uint64 }

func (d *digest) add(pair Pair, rule limit.Rule) {
	var space [256]byte
	text := binary.AppendUvarint(space[:0], uint64(len(pair.Tenant)))
	text = append(text, pair.Tenant...)
	text = binary.AppendUvarint(text, uint64(len(pair.Route)))
	text = append(text, pair.Route...)
	text = binary.BigEndian.AppendUint64(text, uint64(rule.Capacity))
	text = binary.BigEndian.AppendUint64(text, math.Float64bits(rule.Refill))
	text = binary.BigEndian.AppendUint32(text, uint32(rule.Prefetch))
	text = append(text, byte(rule.Algorithm), byte(rule.Mode), rule.Shards)
	sum := sha256.Sum256(text)
	low, carry := bits.Add64(d.low, binary.BigEndian.Uint64(sum[8:]), 0)
	d.low = low
	d.high, _ = bits.Add64(d.high, binary.BigEndian.Uint64(sum[:]), carry)
}

// String returns the digest in hex.
func (d *digest) String() string {
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:], d.high)
	binary.BigEndian.PutUint64(sum[8:], d.low)
	return hex.EncodeToString(sum[:])
}
