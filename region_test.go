package ratelimit_test

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// TestO1Region refuses what is no region, with its line or field.
func TestO1Region(t *testing.T) {
	for name, test := range map[string]struct{ line, want string }{
		"nothing":             {"region", "region takes a name and a share"},
		"no share":            {"region eu", "region takes a name and a share"},
		"no name":             {"region 0.7", "region takes a name and a share"},
		"blank name":          {`region "" 0.7`, "region: a name is needed"},
		"bad name":            {"region eu/west 0.7", `region: "eu/west" is not a region's name: allowed are 1 to 64 characters of A-Z a-z 0-9 . _ -`},
		"over 1":              {"region eu 1.01", "region: 1.01 is out of bounds: allowed are 0.01 to 1"},
		"under 0.01":          {"region eu 0.0099", "region: 0.0099 is out of bounds: allowed are 0.01 to 1"},
		"zero":                {"region eu 0", "region: 0 is out of bounds"},
		"not a number":        {"region eu NaN", "region: NaN is out of bounds"},
		"a word":              {"region eu most", `region: "most" is neither auto nor a share from 0.01 to 1`},
		"percent":             {"region eu 70%", `region: "70%" is neither auto nor a share`},
		"auto and a share":    {"rules postgres://a/b\nregion eu auto 0.7", "region takes a name and a share"},
		"a share and auto":    {"rules postgres://a/b\nregion eu 0.7 auto", "region takes a name and a share"},
		"twice":               {"region eu 0.7\nregion us 0.3", "the option region is given twice"},
		"a share and a block": {"region eu 0.7 {\nvalid 1m\n}", "a region with a share has no block"},
		"unknown option":      {"rules postgres://a/b\nregion eu auto {\nsafe 0.1\n}", `unknown option "safe": allowed here are rebalance, valid`},
		"rebalance":           {"rules postgres://a/b\nregion eu auto {\nrebalance 10ms\n}", "rebalance: 10ms is out of bounds: allowed are 10s to 24h"},
		"rebalance twice":     {"rules postgres://a/b\nregion eu auto {\nrebalance off\nrebalance 2m\n}", "the option rebalance is given twice"},
		"rebalance what":      {"rules postgres://a/b\nregion eu auto {\nrebalance\n}", "wrong argument count"},
		"valid":               {"rules postgres://a/b\nregion eu auto {\nvalid 9s\n}", "valid: 9s is out of bounds: allowed are 10s to 24h"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gateway.Adapt("{\n\trate_limit {\n" + test.line + "\n}\n}")
			require.ErrorContains(t, err, test.want)
			require.Contains(t, err.Error(), "Caddyfile:", "no line")
		})
	}
}

// TestO1RegionJSON refuses the same in JSON, where a field is named.
func TestO1RegionJSON(t *testing.T) {
	for name, test := range map[string]struct{ app, want string }{
		"no name":          {`{"region": {"share": 0.5}}`, "region.name: a name is needed"},
		"bad name":         {`{"region": {"name": "a b"}}`, `region.name: "a b" is not a region's name`},
		"over 1":           {`{"region": {"name": "eu", "share": 7}}`, "region.share: 7 is out of bounds: allowed are 0.01 to 1"},
		"zero":             {`{"region": {"name": "eu", "share": 0}}`, "region.share: 0 is out of bounds"},
		"auto and a share": {`{"rules": {"dsn": "postgres://a/b"}, "region": {"name": "eu", "auto": true, "share": 0.5}}`, "region.share: with auto the share is measured"},
		"auto, no rules":   {`{"region": {"name": "eu", "auto": true}}`, "region.auto: the shares are in tables beside the rules, so the option rules is needed"},
		"valid, no auto":   {`{"region": {"name": "eu", "valid": "1m"}}`, "region: rebalance and valid are for auto"},
		"off and a time":   {`{"rules": {"dsn": "postgres://a/b"}, "region": {"name": "eu", "auto": true, "rebalance": "2m", "rebalance_off": true}}`, "region.rebalance: it is off"},
		"out of bounds":    {`{"rules": {"dsn": "postgres://a/b"}, "region": {"name": "eu", "auto": true, "valid": "25h"}}`, "region.valid: 25h0m0s is out of bounds"},
		"an unknown field": {`{"region": {"name": "eu", "safe": 1}}`, "safe"},
		"a placeholder":    {`{"region": {"name": "{env.NO_SUCH_REGION}"}}`, "region.name: a placeholder in it is unknown or has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := caddy.ProvisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{"rate_limit": json.RawMessage(test.app)}})
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestRegionAdapts holds what the syntax means.
func TestRegionAdapts(t *testing.T) {
	for line, want := range map[string]string{
		"region eu 0.7":                        `{"name":"eu","share":0.7}`,
		"region eu 1":                          `{"name":"eu","share":1}`,
		"region {env.RATELIMIT_REGION} 0.5":    `{"name":"{env.RATELIMIT_REGION}","share":0.5}`,
		"rules postgres://a/b\nregion eu auto": `{"name":"eu","auto":true}`,
		"rules postgres://a/b\nregion eu auto {\nrebalance off\nvalid 1h\n}":      `{"name":"eu","auto":true,"rebalance_off":true,"valid":3600000000000}`,
		"rules postgres://a/b\nregion eu auto {\nrebalance 30s\n}\nmax_keys 1000": `{"name":"eu","auto":true,"rebalance":30000000000}`,
	} {
		config, err := gateway.Adapt("{\n\trate_limit {\n" + line + "\n}\n}")
		require.NoError(t, err, line)
		require.Contains(t, string(config), `"region":`+want, line)
	}
}
