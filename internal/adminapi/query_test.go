package adminapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// TestSubject names the owner in each way, and refuses two at once.
func TestSubject(t *testing.T) {
	t.Parallel()
	guest := "~ip-" + strings.Repeat("0", 64)
	allowed := ExplainCall()
	for raw, want := range map[string]Subject{
		"tenant=+t1+&route=a":           {Tenant: "t1", Route: "a"},
		"tenant=&route=a":               {Route: "a"},
		"ip=+1.2.3.4&route=a":           {Address: "1.2.3.4", Route: "a"},
		"stored=%7Eguest&route=a":       {Stored: "~guest", Route: "a"},
		"key=a%2520b&route=a":           {Stored: "a b", Literal: true, Route: "a"},
		"key=%257Eguest&route=a":        {Stored: "~guest", Literal: true, Route: "a"},
		"key=" + guest + "&route=a":     {Stored: guest, Route: "a"},
		"key=caf%25E9&route=a%2520b":    {Stored: "caf\xe9", Literal: true, Route: "a%20b"},
		"tenant=t&ip=::1&route=a&cost=": {Tenant: "t", Address: "::1", Route: "a"},
	} {
		q, err := ParseQuery(raw, allowed.Parameters)
		require.NoError(t, err, raw)
		s, err := q.Subject()
		require.NoError(t, err, raw)
		require.Equal(t, want, *s, raw)
		require.Equal(t, strings.HasPrefix(s.Stored, "~") && !s.Literal, s.Owned(), raw)
	}
	for raw, want := range map[string]string{
		"tenant=t&route=":           "parameter route is blank",
		"route=a":                   "nobody is named",
		"stored=t&tenant=u&route=a": "parameter stored: not together with",
		"key=t&ip=::1&route=a":      "parameter key: not together with",
		"key=a+b&route=a":           "parameter key:",
		"ip=x&route=a":              "is no IP address",
	} {
		q, err := ParseQuery(raw, allowed.Parameters)
		require.NoError(t, err, raw)
		_, err = q.Subject()
		require.ErrorContains(t, err, want, raw)
	}
}

// TestCursor is read as it was written, whatever the names hold.
func TestCursor(t *testing.T) {
	t.Parallel()
	for _, cursor := range []Cursor{{"*", "*", FromStatic}, {"a\x00b \"€", "create-order", FromPostgres}} {
		read, err := ParseCursor(cursor.String())
		require.NoError(t, err)
		require.Equal(t, cursor, read)
	}
	read, err := ParseCursor("")
	require.NoError(t, err)
	require.Zero(t, read)
	for _, bad := range []string{"x", "e30", Cursor{"a", "b", "elsewhere"}.String(), Cursor{"", "b", FromStatic}.String()} {
		_, err := ParseCursor(bad)
		require.ErrorContains(t, err, "parameter cursor: it is none")
	}
}

// TestCut leaves pages that follow each other without a gap.
func TestCut(t *testing.T) {
	t.Parallel()
	rule := func(tenant, route, from string) Rule { return Rule{Tenant: tenant, Route: route, From: from} }
	page := &Rules{Rules: []Rule{rule("b", "a", FromStatic), rule("a", "b", FromStatic), rule("a", "a", FromStatic), rule("a", "a", FromPostgres)}}
	page.Cut(2)
	require.Equal(t, []Rule{rule("a", "a", FromPostgres), rule("a", "a", FromStatic)}, page.Rules)
	require.Equal(t, Cursor{"a", "a", FromStatic}.String(), page.Next)
	page = &Rules{Rules: page.Rules}
	page.Cut(2)
	require.Empty(t, page.Next)
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for prefetch, want := range map[int32]any{0: nil, limit.PrefetchOff: 0, limit.PrefetchAuto: "auto", 7: int32(7)} {
		require.Equal(t, want, NewNumbers(limit.Rule{Capacity: 1, Refill: 1, Prefetch: prefetch}).Prefetch)
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	for methods, call := range map[string]Call{
		"GET HEAD": StatusCall(), "GET HEAD POST": ExplainCall(), "DELETE": ResetCall(), "POST": RefreshCall(),
	} {
		require.Equal(t, methods, strings.Join(call.Methods(), " "), call.Path)
	}
}
