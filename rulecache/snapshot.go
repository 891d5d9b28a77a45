package rulecache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// maxRejections is how many rejected rows a snapshot remembers one by one.
const maxRejections = 20

// Snapshot is a set of rules as it was at one time. It never changes, so it is
// safe for concurrent use. A nil Snapshot is an empty one.
type Snapshot struct {
	rules    *ruleTable
	sum      digest // of the rules
	members  *memberTable
	hash     string
	loadedAt time.Time
	// What was rejected of the rules, and of the tenants.
	badRules, badMembers rejections
}

// rejections counts rows that made no rule, and remembers the first of them.
type rejections struct {
	count int
	first []Rejection
}

// reject counts a row.
func (r *rejections) reject(rejection Rejection) {
	r.count++
	if len(r.first) < maxRejections {
		r.first = append(r.first, rejection)
	}
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

// NewSnapshot makes a snapshot of entries and of what is known of tenants. Their
// rules are checked and completed by limit.NewRule. An error names the first pair or
// tenant that is wrong, or is given twice.
func NewSnapshot(entries []Entry, members ...Member) (*Snapshot, error) {
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
	s := b.snapshot(time.Time{})
	if len(members) > 0 {
		t := newMemberBuilder(len(members))
		for _, m := range members {
			if err := m.check(); err != nil {
				return nil, err
			}
			if t.members.set(m) {
				return nil, fmt.Errorf("the tenant %q is given twice", clip(m.Tenant))
			}
		}
		s.setMembers(t)
	}
	s.complete()
	return s, nil
}

// Membership returns what is known of a tenant beside its rules. It does not allocate.
func (s *Snapshot) Membership(tenant string) (Membership, bool) {
	if s == nil {
		return Membership{}, false
	}
	return s.members.get(tenant)
}

// Members returns how many tenants have a plan or are blocked.
func (s *Snapshot) Members() int {
	if s == nil {
		return 0
	}
	return s.members.len()
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
// them.
func (s *Snapshot) Rejected() (count int, reasons []Rejection) {
	if s == nil {
		return 0, nil
	}
	first := slices.Concat(s.badRules.first, s.badMembers.first)
	return s.badRules.count + s.badMembers.count, first[:min(len(first), maxRejections)]
}

// builder collects the rules of a snapshot.
type builder struct {
	rules *ruleTable
	kept  map[Pair]struct{}
	rejections
}

func newBuilder(size int) *builder {
	return &builder{
		rules: newRuleTable(size),
		kept:  make(map[Pair]struct{}),
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

// snapshot makes a snapshot of the rules alone.
func (b *builder) snapshot(loadedAt time.Time) *Snapshot {
	s := &Snapshot{loadedAt: loadedAt}
	s.setRules(b)
	s.complete()
	return s
}

// with returns the snapshot that s becomes by what was read at that time. What was
// not read stays, and of a bad row what was last good.
func (s *Snapshot) with(found result, at time.Time) *Snapshot {
	next := &Snapshot{rules: newRuleTable(0)}
	if s != nil {
		*next = *s
	}
	next.loadedAt = at
	if found.rules != nil {
		found.rules.keep(s)
		next.setRules(found.rules)
	}
	if found.members != nil {
		found.members.keep(s)
		next.setMembers(found.members)
	}
	next.complete()
	return next
}

// like reports whether two snapshots say the same.
func (s *Snapshot) like(other *Snapshot) bool {
	return other != nil && s.hash == other.hash && s.badRules.count == other.badRules.count && s.badMembers.count == other.badMembers.count
}

// setRules takes the rules of a builder, which is of no use afterwards.
func (s *Snapshot) setRules(b *builder) {
	s.rules, s.badRules, s.sum = b.rules, b.rejections, digest{}
	for pair, rule := range b.rules.all() {
		s.sum.add(pair, rule)
	}
}

// setMembers takes the tenants of a builder, which is of no use afterwards.
func (s *Snapshot) setMembers(b *memberBuilder) {
	b.members.complete()
	s.members, s.badMembers = b.members, b.rejections
}

// complete makes the hash of all that the snapshot holds.
func (s *Snapshot) complete() {
	sum := s.sum
	if s.members.len() > 0 {
		sum.join(s.members.sum)
	}
	s.hash = sum.String()
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
	if rule.Concurrent > 0 {
		text = binary.BigEndian.AppendUint32(text, uint32(rule.Concurrent))
	}
	d.addHash(sha256.Sum256(text))
}

func (d *digest) addHash(sum [sha256.Size]byte) {
	d.join(digest{high: binary.BigEndian.Uint64(sum[:]), low: binary.BigEndian.Uint64(sum[8:])})
}

// join adds another sum.
func (d *digest) join(other digest) {
	low, carry := bits.Add64(d.low, other.low, 0)
	d.low = low
	d.high, _ = bits.Add64(d.high, other.high, carry)
}

// String returns the digest in hex.
func (d *digest) String() string {
	var sum [16]byte
	binary.BigEndian.PutUint64(sum[:], d.high)
	binary.BigEndian.PutUint64(sum[8:], d.low)
	return hex.EncodeToString(sum[:])
}
