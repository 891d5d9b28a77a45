package rulecache

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanNames(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]string{
		"no name": "", "a space": "a b", "a tilde": "~gold", "long": strings.Repeat("a", 64), "guests": "guest",
		"blank": "blank", "addresses": "ip-unknown", "hashes": "sha256-00", "wildcard": "*",
	} {
		_, err := PlanTenant(plan)
		require.ErrorContains(t, err, "plan", name)
	}
	for _, plan := range []string{"gold", "Free.2", strings.Repeat("a", 63), "ip", "guests"} {
		tenant, err := PlanTenant(plan)
		require.NoError(t, err)
		require.Equal(t, "~"+plan, tenant)
	}
}

func TestMembersThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, tenant := range []string{"", "*", "~gold", " a", strings.Repeat("a", 65)} {
		_, err := NewMember(tenant, "gold", false)
		require.Error(t, err, "%q", tenant)
	}
	_, err := NewSnapshot(nil, Member{Tenant: "a"}, Member{Tenant: "a"})
	require.ErrorContains(t, err, "twice")
}

// TestFindByPlan: the rules of a plan come after the tenant's own and before those
// for all, each in every layer.
func TestFindByPlan(t *testing.T) {
	t.Parallel()
	order := []Pair{{"t1", "a"}, {"t1", "*"}, {"~gold", "a"}, {"~gold", "*"}, {"*", "a"}, {"*", "*"}}
	for i := range order {
		var table, static []Entry
		for k, pair := range order[i:] {
			table = append(table, entry(pair.Tenant, pair.Route, int64(10*(i+k)+1)))
			static = append(static, entry(pair.Tenant, pair.Route, int64(10*(i+k)+2)))
		}
		rule, found := Find("t1", "~gold", "a", snapshot(t, table...), snapshot(t, static...))
		require.True(t, found)
		require.EqualValues(t, 10*i+1, rule.Capacity)
		rule, _ = Find("t1", "~gold", "a", snapshot(t, table[1:]...), snapshot(t, static...))
		require.EqualValues(t, 10*i+2, rule.Capacity)
	}
	candidates := Candidates("t1", "~gold", "a", 1)
	for i, c := range candidates {
		require.Equal(t, order[i], c.Pair)
	}
	require.Len(t, candidates, len(order))
}

// TestTenantsOfATable: plans and blocked tenants come from a table of their own, in
// the same transaction, announced by the same trigger; bad rows keep what was good.
func TestTenantsOfATable(t *testing.T) {
	t.Parallel()
	server := withTable(t)
	server.Exec(t, TenantsSchema("rate_limit_tenant", ""))
	server.Exec(t, "INSERT INTO rate_limit_tenant VALUES ('shop-a', 'gold', false), ('shop-b', NULL, true)")
	rules := beginWith(t, Options{DSN: server.URL(""), Tenants: "rate_limit_tenant"}, Settings{Refresh: time.Hour})
	member := func(tenant string) Membership { m, _ := rules.Snapshot().Membership(tenant); return m }
	within(t, 20*time.Second, "the tenants", func() bool { return rules.Snapshot().Members() == 2 })
	require.Equal(t, Membership{Plan: "~gold"}, member("shop-a"))
	require.Equal(t, Membership{Blocked: true}, member("shop-b"))
	require.Equal(t, Membership{}, member("shop-c"))
	rules.listening(t)

	before := rules.Snapshot()
	server.Exec(t, "UPDATE rate_limit_tenant SET plan = 'pro', blocked = true WHERE tenant_id = 'shop-a'")
	within(t, 10*time.Second, "another plan", func() bool { return member("shop-a") == Membership{Plan: "~pro", Blocked: true} })
	require.Same(t, before.rules, rules.Snapshot().rules, "the rules are not read again")
	require.NotEqual(t, before.Hash(), rules.Snapshot().Hash())

	server.Exec(t, updateRule, 7)
	within(t, 10*time.Second, "another rule", func() bool { return rules.capacity("a") == 7 })
	require.Equal(t, 2, rules.Snapshot().Members())

	server.Exec(t, "ALTER TABLE rate_limit_tenant DROP CONSTRAINT rate_limit_tenant_plan_check")
	server.Exec(t, "UPDATE rate_limit_tenant SET plan = 'guest' WHERE tenant_id = 'shop-a'")
	within(t, 10*time.Second, "the bad row", func() bool { return rules.Status().Rejected == 1 })
	require.Equal(t, Membership{Plan: "~pro", Blocked: true}, member("shop-a"), "what was last good stays")
	_, reasons := rules.Snapshot().Rejected()
	require.Contains(t, reasons[0].Reason, "may not have the name")

	server.Exec(t, "DROP TRIGGER rate_limit_notify ON rate_limit_tenant")
	require.NoError(t, rules.Refresh(t.Context()))
	server.Exec(t, "ALTER TABLE rate_limit_tenant RENAME TO away")
	require.ErrorContains(t, rules.Refresh(t.Context()), "the table rate_limit_tenant does not exist")
	require.ErrorContains(t, rules.Refresh(t.Context()), "caddy rate-limit schema --tenants rate_limit_tenant")
	require.Equal(t, 2, rules.Snapshot().Members(), "an error keeps both")
	require.EqualValues(t, 7, rules.capacity("a"))
	server.Exec(t, "ALTER TABLE away RENAME TO rate_limit_tenant")
	server.Exec(t, "DELETE FROM rate_limit_tenant")
	require.NoError(t, rules.Refresh(t.Context()))
	require.Zero(t, rules.Snapshot().Members())
	require.Zero(t, rules.Status().Rejected)
}

// TestTenantsAreStored: without PostgreSQL the last good plans are in force, too.
func TestTenantsAreStored(t *testing.T) {
	t.Parallel()
	gold, err := NewMember("shop-a", "gold", false)
	require.NoError(t, err)
	blocked, err := NewMember("shop-b", "", true)
	require.NoError(t, err)
	s, err := NewSnapshot([]Entry{entry("~gold", "a", 5)}, gold, blocked)
	require.NoError(t, err)
	text, err := s.encode()
	require.NoError(t, err)
	back, err := decode(text, 100)
	require.NoError(t, err)
	require.Equal(t, s.Hash(), back.Hash())
	require.True(t, outdates(text, s, time.Now()))
	for _, m := range []Member{gold, blocked} {
		known, found := back.Membership(m.Tenant)
		require.True(t, found)
		require.Equal(t, m.Membership, known)
	}
	_, err = decode([]byte(strings.Replace(string(text), `"plan":"gold"`, `"plan":"pro"`, 1)), 100)
	require.ErrorContains(t, err, "not those that were stored")
}

// TestAMillionTenants bounds what a million tenants in five plans take.
func TestAMillionTenants(t *testing.T) {
	const count, most = 1_000_000, int64(100 << 20)
	before := heap()
	b := newMemberBuilder(count)
	for i := range count {
		b.add([][]byte{fmt.Appendf(nil, "customer-%07d", i), fmt.Appendf(nil, "plan-%d", i%5), []byte("f")})
	}
	s := &Snapshot{rules: newRuleTable(0)}
	s.setMembers(b)
	s.complete()
	b.kept = nil
	took := heap() - before
	t.Logf("%d MB", took>>20)
	require.Less(t, took, most)
	known, found := s.Membership("customer-0999999")
	require.True(t, found)
	require.Equal(t, "~plan-4", known.Plan)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Membership("customer-0500000") }))
}

func BenchmarkMembership(b *testing.B) {
	builder := newMemberBuilder(0)
	names := make([]string, 1024)
	for i := range 1_000_000 {
		name := fmt.Sprintf("customer-%07d", i)
		names[i%1024] = name
		builder.add([][]byte{[]byte(name), []byte("gold"), []byte("f")})
	}
	s := &Snapshot{rules: newRuleTable(0)}
	s.setMembers(builder)
	for i := 0; b.Loop(); i++ {
		if _, found := s.Membership(names[i%1024]); !found {
			b.Fatal("a tenant is missing")
		}
	}
}
