package ratelimit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestL9JSONOfTheWrongType: the error has the path and what is allowed there, and
// nothing of the value.
func TestL9JSONOfTheWrongType(t *testing.T) {
	const limits = `"limits":[{"capacity":1,"refill_per_second":1}]`
	for _, test := range []struct{ app, handler, want string }{
		{`{}`, `{"shards":"2"}`, "shards: a text is no value for it: allowed is a whole number"},
		{`{}`, `{"shards":1.5}`, "shards: the number 1.5 is no value for it: allowed is a whole number"},
		{`{}`, `{"routes":"a",` + limits + `}`, "routes: a text is no value for it: allowed is a list"},
		{`{}`, `{"routes":[1]}`, "routes[0]: the number 1 is no value for it: allowed is a text in quotes"},
		{`{}`, `{"shadow":"yes"}`, "shadow: a text is no value for it: allowed is true or false"},
		{`{}`, `{"limits":[{"capacity":1},{"capacity":true}]}`, "limits[1].capacity: true is no value for it: allowed is a whole number"},
		{`{}`, `{"limits":[{"burst":1}]}`, "limits[0].burst: unknown field: allowed here are capacity, refill_per_second, route"},
		{`{}`, `{"limits":[{"capacty":1}]}`, "did you mean capacity?"},
		{`{}`, `{"limits":5}`, "limits: the number 5 is no value for it: allowed is a list"},
		{`{}`, `{"limit":5}`, "did you mean limits?"},
		{`{}`, `{"prefetch":true}`, `prefetch: true is no value for it: allowed is a whole number or "auto"`},
		{`{}`, `{"rate_limits":{"a":{"window":"5"}}}`, `rate_limits.a.window: a text is no value for it: allowed is a text with a number and a unit`},
		{`{}`, `{"rate_limits":{"a":{"max_events":"5"}}}`, "rate_limits.a.max_events: a text"},
		{`{}`, `{"rate_limits":[]}`, "rate_limits: a list is no value for it: allowed is an object"},
		{`{}`, `[]`, "the module: a list is no value for it: allowed is an object"},
		{`{"redis":{"timeout":"5"}}`, `{}`, `redis.timeout: a text is no value for it: allowed is a text with a number and a unit, such as "5ms"`},
		{`{"redis":{"urls":"redis://:secret@a"}}`, `{}`, "redis.urls: a text is no value for it: allowed is a list"},
		{`{"redis":"redis://:secret@a"}`, `{}`, "redis: a text is no value for it: allowed is an object"},
		{`{"redis":{"breaker":{"opne":"1s"}}}`, `{}`, "redis.breaker.opne: unknown field: allowed here are failures, open; did you mean open?"},
		{`{"instances":"many"}`, `{}`, "instances: a text is no value for it: allowed is a whole number"},
		{`{"static_rules":[{"capacity":1e400}]}`, `{}`, "static_rules[0].capacity: the number 1e400 is no value for it"},
		{`{"capcity":5}`, `{}`, "capcity: unknown field: allowed here are "},
	} {
		_, err := provision(t, test.app, test.handler)
		require.ErrorContains(t, err, test.want, test)
		require.NotContains(t, err.Error(), ":secret@")
	}
	_, err := provision(t, `{"Default":{"capacity":1,"refill_per_second":1},"rules":null}`, `{"routes":null,"cost":null}`)
	require.NoError(t, err, "what encoding/json takes stays allowed")
}

// FuzzDecode looks for JSON that makes the search for a fault panic, or find none.
func FuzzDecode(f *testing.F) {
	f.Add(`{"limits":[{"capacity":true}],"rate_limits":{"a":null}}`)
	f.Add(`{"prefetch":`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, dst := range []any{new(Handler), new(App)} {
			type unmarshaler interface{ UnmarshalJSON([]byte) error }
			if err := dst.(unmarshaler).UnmarshalJSON([]byte(text)); err != nil && strings.TrimSpace(err.Error()) == "" {
				t.Error("an error without a text")
			}
		}
	})
}
