package ratelimit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// answers200 answers 200.
var answers200 = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusOK)
	return nil
})

// get sends a request with headers through a handler, and returns the status and
// the limit that it met.
func get(t *testing.T, h *Handler, headers ...string) (status int, most string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, nil)
	err := h.ServeHTTP(w, r, answers200)
	status = w.Code
	if failed, found := errors.AsType[caddyhttp.HandlerError](err); found {
		status = failed.StatusCode
	}
	return status, w.Header().Get("X-Ratelimit-Limit")
}

const plansOfApp = `{
	"static_rules": [
		{"tenant":"shop-vip","route":"plans","capacity":1000,"refill_per_second":1},
		{"tenant":"~gold","route":"plans","capacity":100,"refill_per_second":1},
		{"tenant":"~gold","route":"*","capacity":90,"refill_per_second":1},
		{"tenant":"~free","route":"*","capacity":10,"refill_per_second":10000},
		{"tenant":"*","route":"plans","capacity":30,"refill_per_second":3000}
	],
	"plans": [{"tenant":"shop-a","plan":"gold"},{"tenant":"shop-vip","plan":"gold"},{"tenant":"shop-c","plan":"unruled"}]
}`

// TestPlans: which rule counts for whom. A plan's rules are a default for each of its
// tenants, and what a request says never matches them.
func TestPlans(t *testing.T) {
	h, err := provision(t, plansOfApp, `{"routes":["plans"],"plan":"{http.request.header.X-Plan}"}`)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		headers []string
		most    string
	}{
		"of the configuration":     {[]string{"X-Api-Key", "shop-a"}, "100"},
		"another of the plan":      {[]string{"X-Api-Key", "shop-vip"}, "1000"},
		"before the request's own": {[]string{"X-Api-Key", "shop-a", "X-Plan", "free"}, "100"},
		"the request's own":        {[]string{"X-Api-Key", "shop-b", "X-Plan", "free"}, "10"},
		"a plan without rules":     {[]string{"X-Api-Key", "shop-c"}, "30"},
		"no plan":                  {[]string{"X-Api-Key", "shop-b"}, "30"},
		"no plan's name":           {[]string{"X-Api-Key", "shop-b", "X-Plan", "~gold"}, "30"},
		"a reserved name":          {[]string{"X-Api-Key", "shop-b", "X-Plan", "guest"}, "30"},
		"a key like a plan":        {[]string{"X-Api-Key", "~gold"}, "30"},
		"a wildcard":               {[]string{"X-Api-Key", "*"}, "30"},
	} {
		status, most := get(t, h, test.headers...)
		require.Equal(t, http.StatusOK, status, name)
		require.Equal(t, test.most, most, name)
	}
	status, _ := get(t, h, "X-Api-Key", "shop-b", "X-Plan", "free", "X-Plan", "gold")
	require.Equal(t, http.StatusBadRequest, status, "which of two plans counts must not depend on who reads them")
}

// TestPlansAndUnknown: a tenant is known by a plan that has rules.
func TestPlansAndUnknown(t *testing.T) {
	h, err := provision(t, plansOfApp, `{"routes":["plans"],"unknown":"deny"}`)
	require.NoError(t, err)
	for tenant, want := range map[string]int{"shop-a": 200, "shop-vip": 200, "shop-b": 401, "shop-c": 401, "~gold": 401, "~enterprise": 401, "": 401} {
		status, _ := get(t, h, "X-Api-Key", tenant)
		require.Equal(t, want, status, tenant)
	}
}

// TestPlansOfTenantsAreApart: each tenant of a plan has a bucket of its own.
func TestPlansOfTenantsAreApart(t *testing.T) {
	h, err := provision(t, `{"static_rules":[{"tenant":"~one","route":"*","capacity":1,"refill_per_second":0.001},{"tenant":"*","route":"*","capacity":9,"refill_per_second":1}],
		"plans":[{"tenant":"x","plan":"one"},{"tenant":"y","plan":"one"}]}`, `{"routes":["apart"]}`)
	require.NoError(t, err)
	for _, want := range []int{200, 429} {
		for _, tenant := range []string{"x", "y"} {
			status, most := get(t, h, "X-Api-Key", tenant)
			require.Equal(t, want, status, tenant)
			require.Equal(t, "1", most)
		}
	}
}

func TestPlansRefused(t *testing.T) {
	for name, test := range map[string]struct{ app, handler, want string }{
		"a tenant twice": {`{"default":{"capacity":1,"refill_per_second":1},"plans":[{"tenant":"a","plan":"x"},{"tenant":"a","plan":"y"}]}`, `{}`, "given twice"},
		"guest":          {`{"plans":[{"tenant":"a","plan":"guest"}]}`, `{}`, `plans[0]: the plan may not have the name "guest"`},
		"a tilde":        {`{"plans":[{"tenant":"a","plan":"~x"}]}`, `{}`, "plans[0]"},
		"no plan":        {`{"plans":[{"tenant":"a"}]}`, `{}`, "plans[0]: a tenant and a plan are needed"},
		"for all":        {`{"plans":[{"tenant":"*","plan":"x"}]}`, `{}`, "no request has the tenant"},
		"blank":          {`{"default":{"capacity":1,"refill_per_second":1}}`, `{"plan":" "}`, "plan: a blank text names no plan"},
		"a fixed word":   {`{"default":{"capacity":1,"refill_per_second":1}}`, `{"plan":"a b"}`, "plan: the plan"},
		"a shorthand":    {`{"default":{"capacity":1,"refill_per_second":1}}`, `{"plan":"{header.X-Plan}"}`, "plan: "},
		"a table's name": {`{"rules":{"dsn":"postgres://127.0.0.1/x","tenants":"a.b.c"}}`, `{}`, "tenants may have one dot"},
		"beside zones":   {`{}`, `{"plan":"x","rate_limits":{"z":{"key":"a","window":"1s","max_events":1}}}`, "plan: not together with zones"},
	} {
		_, err := provision(t, test.app, test.handler)
		require.ErrorContains(t, err, test.want, name)
	}
}

// TestPlanThatTheClientNames is warned about.
func TestPlanThatTheClientNames(t *testing.T) {
	for plan, warned := range map[string]bool{"{http.request.header.X-Plan}": true, "{http.request.cookie.plan}": true, "{http.auth.user.plan}": false} {
		core, logs := observer.New(zap.WarnLevel)
		_, err := newPlanSource(&Handler{Plan: plan, logger: zap.New(core)})
		require.NoError(t, err)
		require.Equal(t, warned, logs.FilterMessageSnippet("the client itself says which plan it has").Len() == 1, plan)
	}
}
