package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddygate/ratelimit/rulecache"
)

// TenantPlan says in the configuration which plan a tenant has.
type TenantPlan struct {
	// The tenant, up to 64 characters, as rules name it. Required.
	Tenant string `json:"tenant,omitempty"`

	// The plan, 1 to 63 characters of `A-Za-z0-9._-`. Its rules have the tenant `~`
	// and this name. Required.
	Plan string `json:"plan,omitempty"`
}

// member checks what the configuration says of a tenant. An error names the field.
func (p *TenantPlan) member(field string) (rulecache.Member, error) {
	if p.Plan == "" {
		return rulecache.Member{}, fmt.Errorf("%s: a tenant and a plan are needed", field)
	}
	m, err := rulecache.NewMember(p.Tenant, p.Plan, false)
	if err != nil {
		return m, fmt.Errorf("%s: %w", field, err)
	}
	return m, nil
}

// parsePlan reads `plan <tenant> <plan>` of the global option.
func (a *App) parsePlan(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.Err("plan needs a tenant and the name of a plan, such as `plan shop-a gold`")
	}
	plan := TenantPlan{Tenant: args[0], Plan: args[1]}
	if _, err := plan.member("plan"); err != nil {
		return d.WrapErr(err)
	}
	for _, other := range a.Plans {
		if other.Tenant == plan.Tenant {
			return d.Err("another plan is for the same tenant")
		}
	}
	a.Plans = append(a.Plans, plan)
	return nil
}

// membership returns what is known of a tenant, from PostgreSQL, and from the
// configuration where that knows no plan of it.
func (s *ruleSet) membership(tenant string) rulecache.Membership {
	if tenant == "" {
		return rulecache.Membership{}
	}
	known, _ := s.loaded.Membership(tenant)
	if known.Plan == "" {
		fixed, _ := s.static.Membership(tenant)
		known.Plan = fixed.Plan
	}
	return known
}

// planSource finds the plan of a tenant where nobody else knows one: nil, none.
type planSource struct{ source keySource }

// newPlanSource reads the handler's option `plan`.
func newPlanSource(h *Handler) (*planSource, error) {
	if h.Plan == "" {
		return nil, nil
	}
	if strings.TrimSpace(h.Plan) == "" {
		return nil, errors.New("plan: a blank text names no plan: name a placeholder such as {http.auth.user.plan}")
	}
	if err := errors.Join(checkPlaceholders(h.Plan), checkApart(h.Plan)); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if !strings.Contains(h.Plan, "{") {
		if _, err := rulecache.PlanTenant(h.Plan); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
	}
	p := &planSource{source: newKeySource(h.Plan, h.logger)}
	h.warnOfPlaceholders("plan", h.Plan)
	if once := &p.source.once; len(once.headers)+len(once.queries)+len(once.cookies) > 0 {
		h.logger.Warn("the client itself says which plan it has: name what an authentication has set, or the table of tenants", zap.String("plan", h.Plan))
	}
	return p, nil
}

// of returns the tenant that the rules of the request's plan are for, blank where it
// has none. What cannot be the name of a plan is none.
func (p *planSource) of(r *http.Request, repl *caddy.Replacer) (string, error) {
	if p == nil {
		return "", nil
	}
	name, err := p.source.of(r, repl)
	if err != nil || name == "" {
		return "", err
	}
	tenant, err := rulecache.PlanTenant(name)
	if err != nil {
		return "", nil //nolint:nilerr // what the request says is no plan's name
	}
	return tenant, nil
}
