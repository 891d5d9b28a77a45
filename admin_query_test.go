package ratelimit

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/adminapi"
)

// TestAdminRefusesBadQueries: each reason names the parameter and what is allowed.
func TestAdminRefusesBadQueries(t *testing.T) {
	app := provisionMany(t, `{"default":{"capacity":3,"refill_per_second":1},"guest_secret":"0123456789abcdef"}`,
		`{"routes":["a"],"guest":"ip"}`, `{"routes":["b"]}`)
	for query, want := range map[string]string{
		adminapi.StatusPath + "?x=1":                        `unknown parameter "x": none is allowed`,
		adminapi.RulesPath + "?tenat=x":                     `unknown parameter "tenat": allowed are tenant, route, limit, cursor`,
		adminapi.RulesPath + "?limit=0":                     `parameter limit: "0" is not allowed: allowed is a whole number from 1 to 1000`,
		adminapi.RulesPath + "?limit=ten":                   `from 1 to 1000`,
		adminapi.RulesPath + "?limit=":                      `from 1 to 1000`,
		adminapi.RulesPath + "?tenant=":                     `parameter tenant is blank: allowed is that of a rule`,
		adminapi.RulesPath + "?route=&tenant=t":             `parameter route is blank`,
		adminapi.RulesPath + "?cursor=x":                    `parameter cursor: it is none`,
		adminapi.RulesPath + "?cursor=e30":                  `parameter cursor: it is none`,
		adminapi.TopPath + "?limit=201":                     `from 1 to 200`,
		adminapi.ExplainPath + "?tenant=t&route=":           `parameter route is blank`,
		adminapi.ExplainPath + "?route=a":                   `nobody is named: allowed are tenant`,
		adminapi.ExplainPath + "?tenant=t&route=x":          `no handler has the route "x": allowed are a, b`,
		adminapi.ExplainPath + "?tenant=t&tenant=u":         `parameter tenant is there 2 times: allowed is once`,
		adminapi.ExplainPath + "?stored=t&tenant=u&route=a": `parameter stored: not together with tenant, ip or key`,
		adminapi.ExplainPath + "?stored=&route=a":           `parameter stored is blank`,
		adminapi.ExplainPath + "?stored=t&key=t&route=a":    `parameter stored: not together with tenant, ip or key`,
		adminapi.ExplainPath + "?key=t&tenant=t&route=a":    `parameter key: not together with tenant or ip`,
		adminapi.ExplainPath + "?key=&route=a":              `parameter key: "" is none`,
		adminapi.ExplainPath + "?key=a+b&route=a":           `parameter key: "a b" is none: allowed is what stands for the tenant in a Redis key`,
		adminapi.ExplainPath + "?key=%25%7Aa&route=a":       `parameter key: "%za" is none`,
		adminapi.ExplainPath + "?key=%257eguest&route=a":    `parameter key: "%7eguest" is none`,
		adminapi.BucketPath + "?key=~sha256-0&route=a":      `parameter key: "~sha256-0" is none`,
		adminapi.ExplainPath + "?ip=x&route=a":              `parameter ip: "x" is no IP address`,
		adminapi.ExplainPath + "?ip=&route=a":               `parameter ip is blank`,
		adminapi.ExplainPath + "?tenant=t&route=a&cost=0":   `parameter cost: "0" is not allowed: allowed is a whole number from 1 to 2147483647`,
		adminapi.BucketPath + "?tenant=t&route=a&cost=1":    `unknown parameter "cost"`,
		adminapi.BucketPath + "?tenant=~guest&route=a":      `this names no bucket`,
		adminapi.BucketPath + "?tenant=&route=b":            `this names no bucket`,
		adminapi.ExplainPath + "?tenant=%zz":                `the query cannot be read`,
		adminapi.RefreshPath + "?x=1":                       `unknown parameter "x": none is allowed`,
		adminapi.RefreshPath:                                `there is nothing to refresh`,
	} {
		path, raw, _ := strings.Cut(query, "?")
		err := rawCall(app, path, raw)
		require.ErrorContains(t, err, want, query)
		if failed, ok := errors.AsType[caddy.APIError](err); ok {
			require.Equal(t, http.StatusBadRequest, failed.HTTPStatus, query)
		}
	}
}

// rawCall is asks with a query as it was sent.
func rawCall(app *App, path, raw string) error {
	for _, call := range adminCalls() {
		if call.Path == path {
			q, err := adminapi.ParseQuery(raw, call.Parameters)
			if err != nil {
				return err
			}
			values, _ := url.ParseQuery(raw)
			for name := range values {
				if !q.Has(name) || q.Text(name) != values.Get(name) {
					return errors.New("a parameter was lost")
				}
			}
			_, err = asks(app, path, values)
			return err
		}
	}
	return errors.New("no such call")
}

// FuzzAdminQuery: whatever the query, there is an answer or a reason, and no panic.
func FuzzAdminQuery(f *testing.F) {
	app := provisionMany(f, `{"guest_secret":"0123456789abcdef","default":{"capacity":3,"refill_per_second":1}}`,
		`{"routes":["a"],"guest":"ip","unknown":"guest"}`, `{"routes":["b"],"tenant_hashed":true}`,
		`{"rate_limits":{"z":{"key":"{http.request.remote.host}","window":"1s","max_events":3,"ipv4_prefix":24}}}`)
	for _, seed := range []string{
		"tenant=t1&route=a", "key=%257Eguest&route=z", "key=caf%25E9&route=a", "tenant=~guest&ip=1.2.3.4&route=a", "stored=~ip-0&route=a", "ip=fe80::1%25eth0&route=a", "route=z&tenant=%00",
		"limit=1&cursor=eyJ0IjoiKiIsInIiOiIqIiwiZiI6InN0YXRpYyJ9", "tenant=%7E&route=b&cost=2147483647", "a=1;b=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		for _, call := range adminCalls() {
			err := rawCall(app, call.Path, raw)
			var failed caddy.APIError
			if errors.As(err, &failed) && failed.HTTPStatus != http.StatusBadRequest {
				t.Fatalf("%s?%s: %v", call.Path, raw, err)
			}
			if err != nil && err.Error() == "" {
				t.Fatalf("%s?%s: an error without a reason", call.Path, raw)
			}
		}
	})
}
