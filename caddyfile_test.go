package ratelimit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/cases/gateway"
)

// TestAdapt runs the goldens in testdata/adapt: a Caddyfile, a line of ten
// dashes, and the JSON it adapts to or the text that its error must contain.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			require.NoError(t, err)
			caddyfile, want, found := bytes.Cut(golden, []byte("\n----------\n"))
			require.True(t, found, "no line of ten dashes")
			got, err := gateway.Adapt(string(caddyfile))
			if want = bytes.TrimSpace(want); !bytes.HasPrefix(want, []byte("{")) {
				require.ErrorContains(t, err, string(want))
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
		})
	}
}

func TestDirective(t *testing.T) {
	tests := map[string]string{
		`rate_limit { headers ietf }`:                    `{"headers":"ietf"}`,
		`rate_limit { headers both }`:                    `{"headers":"both"}`,
		`rate_limit { limit 100/s }`:                     `{"limits":[{"capacity":100,"refill_per_second":100}]}`,
		`rate_limit a { limit 100/s burst 200 }`:         `{"routes":["a"],"limits":[{"capacity":200,"refill_per_second":100}]}`,
		`rate_limit a { limit 100/10s a }`:               `{"routes":["a"],"limits":[{"route":"a","capacity":100,"refill_per_second":10}]}`,
		`rate_limit a { limit 1/1000s burst 5 a }`:       `{"routes":["a"],"limits":[{"route":"a","capacity":5,"refill_per_second":0.001}]}`,
		`rate_limit /orders a { tenant {header.X-Key} }`: `{"routes":["a"],"tenant":"{http.request.header.X-Key}"}`,
		`rate_limit a b { limit 1/s
			limit 2/s b
			tenant {header.X-Key} hashed
			guest ip
			ipv4_prefix 24
			ipv6_prefix 48
			unknown guest
			cost {header.X-Cost}
			shadow }`: `{"routes":["a","b"],"limits":[{"capacity":1,"refill_per_second":1},{"route":"b","capacity":2,"refill_per_second":2}],
			"tenant":"{http.request.header.X-Key}","tenant_hashed":true,"guest":"ip","ipv4_prefix":24,"ipv6_prefix":48,"unknown":"guest",
			"cost":"{http.request.header.X-Cost}","shadow":true}`,
		`rate_limit a { guest allow
			headers off
			log_key
			algorithm token_bucket }`: `{"routes":["a"],"guest":"allow","headers":"off","log_key":true,"algorithm":"token_bucket"}`,
	}
	for caddyfile, want := range tests {
		config, err := gateway.Adapt("http://localhost:8080 {\n" + strings.NewReplacer("{ ", "{\n", " }", "\n}").Replace(caddyfile) + "\n}")
		require.NoError(t, err, caddyfile)
		want = strings.TrimSuffix(want, "}") + `,"handler":"rate_limit"}`
		require.JSONEq(t, want, gateway.HandlerOf(t, config), caddyfile)
	}
}

// TestO1NonsenseIsRefusedWithItsLine holds what a Caddyfile must not hold.
func TestO1NonsenseIsRefusedWithItsLine(t *testing.T) {
	global := func(lines string) string {
		return "{\n\trate_limit {\n" + lines + "\n\t}\n}\nhttp://localhost:8080 {\n\trespond ok\n}"
	}
	redis := func(lines string) string {
		return global("redis redis://127.0.0.1:6379/0 {\n" + lines + "\n}")
	}
	directive := func(lines string) string {
		return "http://localhost:8080 {\n\trate_limit a {\n" + lines + "\n\t}\n}"
	}
	tests := []struct{ name, caddyfile, want string }{
		{"unknown option", directive("capcity 5"), `unknown option "capcity"`},
		{"unknown global option", global("capcity 5"), `unknown option "capcity"`},
		{"misplaced option", directive("redis redis://127.0.0.1"), `unknown option "redis"`},
		{"duplicate option", directive("guest deny\nguest deny"), "twice"},
		{"duplicate limit", directive("limit 1/s\nlimit 2/s"), "twice"},
		{"ipv4_prefix 33", directive("ipv4_prefix 33"), "allowed are 1 to 32"},
		{"ipv6_prefix 129", directive("ipv6_prefix 129"), "allowed are 1 to 128"},
		{"ipv6_prefix 0", directive("ipv6_prefix 0"), "allowed are 1 to 128"},
		{"unknown word for unknown", directive("unknown maybe"), "allowed are default, guest, deny"},
		{"unknown algorithm", directive("algorithm leaky"), "allowed are token_bucket, sliding_window_log, sliding_window_counter"},
		{"cost 0", directive("cost 0"), "whole number from 1"},
		{"cost x", directive("cost x"), "whole number from 1"},
		{"tenant with a second word", directive("tenant {header.X} plain"), "Caddyfile:3"},
		{"rule with an unknown mode", global("rule a b 5/s mode maybe"), "unknown mode"},
		{"rule with a log over 100,000", global("rule a b 100001/s algorithm sliding_window_log"), "allowed are 1 to 100000"},
		{"two arguments", directive("guest deny allow"), "Caddyfile:3"},
		{"timeout without a unit", redis("timeout 5"), "not a duration"},
		{"timeout 0", redis("timeout 0"), "Caddyfile:4"},
		{"timeout 0s", redis("timeout 0s"), "out of bounds"},
		{"timeout too long", redis("timeout 11s"), "allowed are 1ms to 10s"},
		{"dial_timeout 0", redis("dial_timeout 0s"), "out of bounds"},
		{"breaker 0", redis("breaker 0 1s"), "allowed are 1 to 1000"},
		{"breaker 1ms", redis("breaker 5 1ms"), "allowed are 100ms to 5m0s"},
		{"breaker alone", redis("breaker 5"), "or off"},
		{"key_prefix with braces", redis("key_prefix {x}"), "without braces"},
		{"address as an option", global("redis redis://a {\n}\nredis://:secret@b"), "an address stands where an option should"},
		{"arguments of the global option", "{\n\trate_limit redis://:secret@b {\n}\n}", "takes a block and no arguments"},
		{"two rules for one pair", global("rule a b 1/s\nrule a b 2/s"), "same tenant and route b"},
		{"a secret of two words", global("guest_secret a :secret@"), "wrong argument count: guest_secret takes one"},
		{"rule with a word twice", global("rule a b 1/s mode enforce mode enforce"), "twice"},
		{"rule with a long tenant", global("rule " + strings.Repeat("x", 65) + " b 1/s"), "Caddyfile:3"},
		{"limit of another route", directive("limit 1/s b"), "not a route of this directive"},
		{"key_prefix too long", redis("key_prefix " + strings.Repeat("x", 33)), "32 bytes"},
		{"unknown tls option", redis("tls {\nfoo bar\n}"), `unknown option "foo"`},
		{"refresh 10ms", global("rules postgres://localhost/x {\nrefresh 10ms\n}"), "allowed are 1s to 24h0m0s"},
		{"max_rules 0", global("rules postgres://localhost/x {\nmax_rules 0\n}"), "out of bounds"},
		{"listen maybe", global("rules postgres://localhost/x {\nlisten maybe\n}"), "allowed are on, off"},
		{"instances 0", global("instances 0"), "allowed are 1 to 100000"},
		{"instances -1", global("instances -1"), "allowed are 1 to 100000"},
		{"instances x", global("instances x"), "not a whole number"},
		{"instances auto alone", global("instances auto"), "auto and the number that counts until the gateways know each other"},
		{"instances auto 0", global("instances auto 0"), "allowed are 1 to 100000"},
		{"instances auto x", global("instances auto x"), "not a whole number"},
		{"instances auto with too many", global("instances auto 3 4"), "such as auto 3"},
		{"instances 3 auto", global("instances 3 auto"), "such as auto 3"},
		{"instances auto twice", global("instances auto 3\ninstances auto 3"), "twice"},
		{"instances fixed and auto", global("instances 3\ninstances auto 3"), "twice"},
		{"instances without a number", global("instances"), "a number from 1 to 100000"},
		{"max_keys 0", global("max_keys 0"), "out of bounds"},
		{"fallback maybe", global("fallback maybe"), "allowed are local, allow, deny"},
		{"headers maybe", directive("headers maybe"), "allowed are legacy, ietf, both, off"},
		{"global headers maybe", global("headers maybe"), "allowed are legacy, ietf, both, off"},
		{"reset maybe", global("reset maybe"), "allowed are delta, epoch"},
		{"rule without a rate", global("rule a b"), "Caddyfile:3"},
		{"rule with a bad rate", global("rule a b 5"), "not of the form"},
		{"rule with a bad word", global("rule a b 5/s foo bar"), `unknown word "foo"`},
		{"rule with an unknown algorithm", global("rule a b 5/s algorithm leaky"), "unknown algorithm"},
		{"rule with a bad route", global("rule a /b 5/s"), "Caddyfile:3"},
		{"shards -1", directive("shards -1"), "Caddyfile:3"},
		{"rate without a unit", directive("limit 100"), "not of the form"},
		{"rate 0", directive("limit 0/s"), "whole number from 1"},
		{"rate with a bad unit", directive("limit 5/parsec"), "not s, m, h, d"},
		{"window too long", directive("limit 1/d burst 2147483647"), "out of bounds"},
		{"burst 0", directive("limit 5/s burst 0"), "burst"},
		{"shards 17", directive("shards 17"), "allowed are 1 to 16"},
		{"prefetch -1", directive("prefetch -1"), "nor auto"},
		{"prefetch 100001", directive("prefetch 100001"), "nor auto"},
		{"prefetch of a rule", global("rule a b 1/s prefetch x"), "nor auto"},
		{"shards of a rule", global("rule a b 1/s shards 0"), "allowed are 1 to 16"},
		{"linger without a duration", redis("linger soon"), "linger"},
		{"blank tenant", directive(`tenant " "`), "names no tenant"},
		{"rate as a route", "http://localhost:8080 {\n\trate_limit 100/s\n}", "did you mean the option `limit 100/s`"},
		{"bad route", "http://localhost:8080 {\n\trate_limit a:b\n}", "is not a route"},
		{"second global option", "{\n\trate_limit {\n\t}\n\trate_limit {\n\t}\n}", "twice"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := gateway.Adapt(test.caddyfile)
			require.ErrorContains(t, err, test.want)
			require.Contains(t, err.Error(), "Caddyfile:", "no line")
			require.NotContains(t, err.Error(), ":secret@")
		})
	}
}

// FuzzAdapt looks for input that makes a parser panic.
func FuzzAdapt(f *testing.F) {
	f.Add("redis redis://x {\n timeout 5ms\n}", "limit 5/s burst 3 a")
	f.Add("rule a b 5/s burst 3 mode enforce", "tenant {header.X}")
	f.Add("instances auto", "guest\nguest")
	f.Add("rules postgres://x\nregion eu auto {\nrebalance off\nvalid 1m\n}", "guest")
	f.Add("region eu 0.7", "shadow")
	f.Add("redis redis://x", "zone a {\n match {\n path /x\n}\n key {remote_host}\n window 1s\n events 5\n}\njitter 0.2\ndistributed\nstorage redis {\n a b\n}")
	f.Add("rules postgres://x {\n listen off\n}\ndefault 1/s", "algorithm\nheaders off")
	f.Fuzz(func(_ *testing.T, global, directive string) {
		_, _ = gateway.Adapt("{\n\trate_limit {\n" + global + "\n}\n}\nhttp://localhost:8080 {\n\trate_limit a {\n" + directive + "\n}\n}")
	})
}
