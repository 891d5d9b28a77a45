package rulecache

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/caddygate/ratelimit/limit"
)

// Membership is what is known of one tenant beside its rules.
type Membership struct {
	// Plan is the tenant that the rules of the tenant's plan are for, such as
	// "~gold"; "" where the tenant has no plan.
	Plan string
	// Blocked tells that no request of the tenant may pass.
	Blocked bool
}

// planMark is what the name of a plan has before it as the tenant of a rule. No
// request's tenant begins with it.
const planMark = "~"

// maxPlanLength is the longest name of a plan, in bytes.
const maxPlanLength = 63

// PlanTenant returns the tenant that the rules of a plan are for, or why a plan
// cannot have that name: it is 1 to 63 characters of `A-Za-z0-9._-`, and none of the
// names that stand for guests and hashed tenants.
func PlanTenant(plan string) (string, error) {
	switch {
	case plan == "":
		return "", errors.New("the plan has no name")
	case len(plan) > maxPlanLength || !limit.ValidRoute(plan):
		return "", fmt.Errorf("the plan %q is no name: allowed are 1 to %d characters of A-Z a-z 0-9 . _ -", clip(plan), maxPlanLength)
	case plan == "guest", plan == "blank", strings.HasPrefix(plan, "ip-"), strings.HasPrefix(plan, "sha256-"):
		return "", fmt.Errorf("the plan may not have the name %q: it stands for tenants without a name of their own", plan)
	}
	return planMark + plan, nil
}

// clip shortens what a message quotes of foreign data.
func clip(text string) string {
	const most = 64
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// Member is one tenant and what is known of it.
type Member struct {
	// Tenant is the tenant's name of 1 to 64 characters, as for a Pair.
	Tenant string
	Membership
}

// NewMember returns what is known of a tenant: the name of its plan, "" for none, and
// whether it is blocked. An error says what is wrong with the names.
func NewMember(tenant, plan string, blocked bool) (m Member, err error) {
	m = Member{Tenant: tenant, Membership: Membership{Blocked: blocked}}
	if err = m.check(); err == nil && plan != "" {
		m.Plan, err = PlanTenant(plan)
	}
	return m, err
}

// check reports why m cannot be.
func (m Member) check() error {
	if err := (Pair{Tenant: m.Tenant, Route: Wildcard}).check(); err != nil {
		return err
	}
	if m.Tenant == Wildcard || strings.HasPrefix(m.Tenant, planMark) {
		return fmt.Errorf("no request has the tenant %q", clip(m.Tenant))
	}
	return nil
}

// memberTable holds members by their tenants. Once it is built it never changes. It
// has no pointers but for the texts, and takes about 40 bytes a tenant.
type memberTable struct {
	tenants *names
	plans   *names
	states  []uint32 // by a tenant's number: that of its plan and one, or 0, times two, and one where it is blocked
	sum     digest
}

func newMemberTable(size int) *memberTable {
	return &memberTable{tenants: newNames(size), plans: newNames(0), states: make([]uint32, 0, size)}
}

// len returns how many tenants there are.
func (t *memberTable) len() int {
	if t == nil {
		return 0
	}
	return len(t.states)
}

// get returns what is known of a tenant. It does not allocate.
func (t *memberTable) get(tenant string) (Membership, bool) {
	if t.len() == 0 {
		return Membership{}, false
	}
	number, found := t.tenants.find(tenant)
	if !found {
		return Membership{}, false
	}
	return t.at(number), true
}

func (t *memberTable) at(number uint32) (m Membership) {
	state := t.states[number]
	m.Blocked = state&1 == 1
	if state > 1 {
		m.Plan = t.plans.get(state/2 - 1)
	}
	return m
}

// set puts a member in the place of the one of its tenant, and reports whether there
// was one. Names are copied.
func (t *memberTable) set(m Member) (replaced bool) {
	state := uint32(0)
	if m.Plan != "" {
		state = 2 * (t.plans.add(m.Plan) + 1)
	}
	if m.Blocked {
		state++
	}
	number := t.tenants.add(m.Tenant)
	if int(number) < len(t.states) {
		t.states[number] = state
		return true
	}
	t.states = append(t.states, state)
	return false
}

// all returns the members in the order in which their tenants were first set.
func (t *memberTable) all() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for number := range t.len() {
			if !yield(Member{Tenant: t.tenants.get(uint32(number)), Membership: t.at(uint32(number))}) {
				return
			}
		}
	}
}

// complete sums up the members, when all are there.
func (t *memberTable) complete() {
	t.sum = digest{}
	for m := range t.all() {
		var space [256]byte
		text := append(space[:0], "member"...)
		text = binary.AppendUvarint(text, uint64(len(m.Tenant)))
		text = append(text, m.Tenant...)
		text = append(text, m.Plan...)
		if m.Blocked {
			text = append(text, 0)
		}
		t.sum.addHash(sha256.Sum256(text))
	}
}

// The columns of a row of tenants, in the order in which they are asked for.
const (
	columnMember = iota
	columnPlan
	columnBlocked
	memberColumnCount
)

// memberColumns returns the name of each column.
func memberColumns() []string { return []string{"tenant_id", "plan", "blocked"} }

// memberBuilder collects the tenants of a snapshot.
type memberBuilder struct {
	members *memberTable
	kept    map[string]struct{}
	rejections
}

func newMemberBuilder(size int) *memberBuilder {
	return &memberBuilder{members: newMemberTable(size), kept: make(map[string]struct{})}
}

// add makes a member of a row, or counts it as rejected.
func (b *memberBuilder) add(row [][]byte) {
	m, err := readMember(row)
	if err != nil {
		if m.check() == nil {
			b.kept[m.Tenant] = struct{}{}
		}
		b.reject(Rejection{Reason: "table of tenants: " + err.Error()})
		return
	}
	delete(b.kept, m.Tenant)
	if b.members.set(m) {
		b.reject(Rejection{Reason: "table of tenants: duplicate: another row, which comes before it by its values, has the same tenant, and is passed over"})
	}
}

// readMember reads a row. Where only the plan is wrong it returns the tenant, too.
func readMember(row [][]byte) (m Member, err error) {
	if row[columnMember] == nil {
		return m, errors.New("tenant_id is NULL")
	}
	m.Tenant = string(row[columnMember])
	if err := m.check(); err != nil {
		return Member{}, err
	}
	m.Blocked = strings.HasPrefix(string(row[columnBlocked]), "t")
	if plan := row[columnPlan]; plan != nil {
		if !utf8.Valid(plan) {
			return m, errors.New("the plan is not valid UTF-8")
		}
		m.Plan, err = PlanTenant(string(plan))
	}
	return m, err
}

// keep leaves in force what last told of the tenants whose row is bad now.
func (b *memberBuilder) keep(last *Snapshot) {
	for tenant := range b.kept {
		if known, found := last.Membership(tenant); found {
			b.members.set(Member{Tenant: tenant, Membership: known})
		}
	}
}
