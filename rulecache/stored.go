package rulecache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddygate/ratelimit/limit"
)

// storedVersion is the version of the form in which snapshots are stored. A
// snapshot of another version is not used.
const storedVersion = 1

// storedSnapshot is the JSON of a snapshot.
type storedSnapshot struct {
	Version  int          `json:"version"`
	LoadedAt time.Time    `json:"loaded_at"`
	Hash     string       `json:"hash"`
	Rules    []storedRule `json:"rules"`
	// Members are the tenants with a plan, and those that are blocked.
	Members []storedMember `json:"tenants,omitempty"`
}

// storedMember is the JSON of one tenant.
type storedMember struct {
	Tenant  string `json:"tenant"`
	Plan    string `json:"plan,omitempty"`
	Blocked bool   `json:"blocked,omitempty"`
}

// storedRule is the JSON of one rule; its words are those of static rules.
type storedRule struct {
	Tenant    string  `json:"tenant"`
	Route     string  `json:"route"`
	Capacity  int64   `json:"capacity"`
	Refill    float64 `json:"refill_per_second"`
	Algorithm string  `json:"algorithm,omitempty"`
	Mode      string  `json:"mode,omitempty"`
	Prefetch  int32   `json:"prefetch,omitempty"`
	Shards    uint8   `json:"shards,omitempty"`

	Concurrent int64 `json:"concurrent,omitempty"`
}

// storedRuleBytes is about what one rule takes in JSON.
const storedRuleBytes = 128

// encode returns the JSON of s. It writes rule by rule into one buffer, because a
// million of them at once, as values and then as text, would take the memory of
// several snapshots.
func (s *Snapshot) encode() ([]byte, error) {
	head, err := json.Marshal(storedSnapshot{Version: storedVersion, LoadedAt: s.loadedAt, Hash: s.hash, Rules: []storedRule{}})
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.Grow(len(head) + (s.Len()+s.Members()/2)*storedRuleBytes)
	text.Write(bytes.TrimSuffix(head, []byte("]}")))
	encoder := json.NewEncoder(&text)
	var stored storedRule
	for pair, rule := range s.rules.all() {
		if stored.Capacity != 0 {
			text.WriteByte(',')
		}
		stored = storedRule{
			Tenant: pair.Tenant, Route: pair.Route, Capacity: rule.Capacity, Refill: rule.Refill,
			Algorithm: rule.Algorithm.String(), Mode: rule.Mode.String(), Prefetch: rule.Prefetch, Shards: rule.Shards, Concurrent: rule.Concurrent,
		}
		if err := encoder.Encode(&stored); err != nil {
			return nil, err
		}
	}
	if s.Members() > 0 {
		if err := s.encodeMembers(&text, encoder); err != nil {
			return nil, err
		}
	}
	text.WriteString("]}")
	return text.Bytes(), nil
}

// encodeMembers writes the tenants behind the rules, in the same way.
func (s *Snapshot) encodeMembers(text *bytes.Buffer, encoder *json.Encoder) error {
	text.WriteString(`],"tenants":[`)
	first := true
	for m := range s.members.all() {
		if !first {
			text.WriteByte(',')
		}
		first = false
		if err := encoder.Encode(storedMember{m.Tenant, strings.TrimPrefix(m.Plan, planMark), m.Blocked}); err != nil {
			return err
		}
	}
	return nil
}

// storedHeadBytes is more than what encode writes before the rules.
const storedHeadBytes = 512

// outdates reports whether text, which was stored, makes it needless to store s: it
// has the same rules, or those of a later time, which has come. Only its head is
// looked at, but it must be whole.
func outdates(text []byte, s *Snapshot, now time.Time) bool {
	head, _, found := bytes.Cut(text[:min(len(text), storedHeadBytes)], []byte(`"rules":[`))
	if !found || !bytes.HasSuffix(text, []byte("]}")) {
		return false
	}
	var stored storedSnapshot
	if err := json.Unmarshal(append(bytes.Clone(head), `"rules":[]}`...), &stored); err != nil || stored.Version != storedVersion {
		return false
	}
	return stored.Hash == s.hash || stored.LoadedAt.After(s.loadedAt) && !stored.LoadedAt.After(now)
}

// decode reads what encode wrote. Whatever does not add up refuses it whole,
// because half a set of rules is worse than the defaults.
func decode(text []byte, maxRules int) (*Snapshot, error) {
	var stored storedSnapshot
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, errors.New("it is empty, cut off or not the JSON of a snapshot")
	}
	switch {
	case stored.Version != storedVersion:
		return nil, fmt.Errorf("its version is %d, not %d", stored.Version, storedVersion)
	case len(stored.Rules) > maxRules, len(stored.Members) > maxRules:
		return nil, fmt.Errorf("it has more than max_rules (%d) rules or tenants", maxRules)
	}
	entries := make([]Entry, len(stored.Rules))
	for i, rule := range stored.Rules {
		entry, err := rule.entry()
		if err != nil {
			return nil, fmt.Errorf("rule number %d: %w", i+1, err)
		}
		entries[i] = entry
	}
	members := make([]Member, len(stored.Members))
	for i, member := range stored.Members {
		var err error
		if members[i], err = NewMember(member.Tenant, member.Plan, member.Blocked); err != nil {
			return nil, fmt.Errorf("tenant number %d: %w", i+1, err)
		}
	}
	snapshot, err := NewSnapshot(entries, members...)
	switch {
	case err != nil:
		return nil, errors.New("a rule in it is out of bounds or given twice")
	case snapshot.hash != stored.Hash:
		return nil, errors.New("its rules are not those that were stored")
	}
	snapshot.loadedAt = stored.LoadedAt
	return snapshot, nil
}

func (r storedRule) entry() (entry Entry, err error) {
	rule := limit.Rule{Capacity: r.Capacity, Refill: r.Refill, Prefetch: r.Prefetch, Shards: r.Shards, Concurrent: r.Concurrent}
	if r.Algorithm != "" {
		if rule.Algorithm, err = limit.ParseAlgorithm(r.Algorithm); err != nil {
			return Entry{}, err
		}
	}
	if r.Mode != "" {
		if rule.Mode, err = limit.ParseMode(r.Mode); err != nil {
			return Entry{}, err
		}
	}
	return Entry{Pair: Pair{Tenant: r.Tenant, Route: r.Route}, Rule: rule}, nil
}
