package headers

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// policyState is a quota that is given as a whole.
type policyState struct {
	name  string
	rule  limit.Rule
	state limit.State
}

func quotasAs(all []policyState) (quotas []Quota) {
	for _, of := range all {
		quotas = append(quotas, Quota{Name: of.name, Rule: of.rule, Held: of.rule, State: of.state})
	}
	return quotas
}

func TestFields(t *testing.T) {
	t.Parallel()
	order := limit.Rule{Capacity: 200, Refill: 100, WindowMillis: 2000}
	daily := limit.Rule{Capacity: 1, WindowMillis: 86_400_000}
	fast := limit.Rule{Capacity: 1, WindowMillis: 1}
	for name, test := range map[string]struct {
		quotas        []policyState
		policy, limit string
	}{
		"none": {},
		"one": {
			[]policyState{{"create-order", order, limit.State{Remaining: 152, ResetAfter: 480 * time.Millisecond}}},
			`"create-order";q=200;w=2`, `"create-order";r=152;t=1`,
		},
		"two": {
			[]policyState{
				{"create-order", order, limit.State{RetryAfter: time.Millisecond}},
				{"daily", daily, limit.State{RetryAfter: 24 * time.Hour}},
			},
			`"create-order";q=200;w=2, "daily";q=1;w=86400`, `"create-order";r=0;t=1, "daily";r=0;t=86400`,
		},
		"a window under a second": {
			[]policyState{{"fast", fast, limit.State{Remaining: 1}}},
			`"fast";q=1;w=1`, `"fast";r=1`,
		},
		"a window that is rounded up": {
			[]policyState{{"w", limit.Rule{Capacity: 3, WindowMillis: 2001}, limit.State{RetryAfter: 667 * time.Millisecond}}},
			`"w";q=3;w=3`, `"w";r=0;t=1`,
		},
		"exact seconds stay": {
			[]policyState{{"w", limit.Rule{Capacity: 3, WindowMillis: 3000}, limit.State{RetryAfter: 40 * time.Second}}},
			`"w";q=3;w=3`, `"w";r=0;t=40`,
		},
		"a cost that never fits": {
			[]policyState{{"a", daily, limit.State{Remaining: 1, RetryAfter: limit.Never}}},
			`"a";q=1;w=86400`, `"a";r=1`,
		},
		"more left than there is": {
			[]policyState{{"a", daily, limit.State{Remaining: 9}}},
			`"a";q=1;w=86400`, `"a";r=1`,
		},
		"less left than nothing": {
			[]policyState{{"a", daily, limit.State{Remaining: -9}}},
			`"a";q=1;w=86400`, `"a";r=0`,
		},
		"largest numbers": {
			[]policyState{{"a", limit.Rule{Capacity: limit.MaxCapacity, WindowMillis: limit.MaxWindow.Milliseconds()}, limit.State{Remaining: limit.MaxCapacity, RetryAfter: limit.MaxWindow}}},
			`"a";q=2147483647;w=315360000`, `"a";r=2147483647;t=315360000`,
		},
		"one name twice: the nearer to empty": {
			[]policyState{{"a", order, limit.State{Remaining: 5}}, {"a", daily, limit.State{Remaining: 1}}, {"b", daily, limit.State{}}},
			`"a";q=1;w=86400, "b";q=1;w=86400`, `"a";r=1, "b";r=0`,
		},
		"one name twice, as near: the longer wait": {
			[]policyState{
				{"a", order, limit.State{RetryAfter: time.Second}},
				{"a", daily, limit.State{RetryAfter: limit.Never}},
				{"a", fast, limit.State{RetryAfter: time.Hour}},
			},
			`"a";q=1;w=86400`, `"a";r=0`,
		},
		"one name twice, all the same: the first": {
			[]policyState{{"a", order, limit.State{Remaining: 1}}, {"a", daily, limit.State{Remaining: 1}}},
			`"a";q=200;w=2`, `"a";r=1`,
		},
		"names of any text": {
			[]policyState{{`a "b" \c`, daily, limit.State{}}, {"é\x00\n\x7f~ %", daily, limit.State{}}, {"", daily, limit.State{}}},
			`"a \"b\" \\c";q=1;w=86400, "%C3%A9%00%0A%7F~ %";q=1;w=86400, "";q=1;w=86400`,
			`"a \"b\" \\c";r=0, "%C3%A9%00%0A%7F~ %";r=0, "";r=0`,
		},
	} {
		require.Equal(t, test.policy, Policy(quotasAs(test.quotas)), name)
		require.Equal(t, test.limit, Limit(quotasAs(test.quotas)), name)
		for _, field := range []string{test.policy, test.limit} {
			if field != "" {
				_, err := parseList(field)
				require.NoError(t, err, name)
			}
		}
	}
}

// TestFieldsAllocateTheirTextAlone holds the cost on the hot path.
func TestFieldsAllocateTheirTextAlone(t *testing.T) {
	all := quotasAs([]policyState{{"create-order", limit.Rule{Capacity: 200, WindowMillis: 2000}, limit.State{Remaining: 152}}})
	require.InDelta(t, 1, testing.AllocsPerRun(100, func() { _ = Policy(all) }), 0)
	require.InDelta(t, 1, testing.AllocsPerRun(100, func() { _ = Limit(all) }), 0)
}

// FuzzFields holds the fields to the grammar and the numbers to their bounds,
// whatever the names and the states.
func FuzzFields(f *testing.F) {
	f.Add("create-order", "daily", int64(152), int64(0))
	f.Add(`a"\`, "é\xff\x00", int64(-1), int64(limit.Never))
	f.Add("a", "a", int64(math.MaxInt64), int64(math.MaxInt64/2))
	f.Fuzz(func(t *testing.T, first, second string, remaining, retry int64) {
		rule := limit.Rule{Capacity: 200, WindowMillis: 1500}
		state := limit.State{Remaining: remaining, RetryAfter: time.Duration(min(retry, int64(limit.MaxWindow)))}
		all := quotasAs([]policyState{{first, rule, state}, {second, rule, limit.State{Remaining: 200}}})
		policies, err := parseList(Policy(all))
		require.NoError(t, err)
		limits, err := parseList(Limit(all))
		require.NoError(t, err)
		require.Len(t, limits, len(policies))
		if first != second {
			require.Len(t, policies, 2)
		}
		for i, policy := range policies {
			require.Equal(t, policy.name, limits[i].name)
			require.Equal(t, map[string]int64{"q": 200, "w": 2}, policy.parameters)
			require.LessOrEqual(t, limits[i].parameters["r"], int64(200))
			for _, n := range limits[i].parameters {
				require.GreaterOrEqual(t, n, int64(0))
			}
		}
	})
}

// member is one of a List: here always a String with Integers for parameters.
type member struct {
	name       string
	parameters map[string]int64
}

// listParser reads a List of Strings with parameters as RFC 9651, section 4.2,
// says, and takes nothing but its canonical form, which section 4.1 writes.
type listParser struct{ rest string }

var errNotAList = errors.New("not a list")

func parseList(text string) ([]member, error) {
	p := &listParser{text}
	var members []member
	for {
		m, err := p.member()
		if err != nil {
			return nil, fmt.Errorf("%w: %w at %q of %q", errNotAList, err, p.rest, text)
		}
		members = append(members, m)
		if p.rest == "" {
			return members, nil
		}
		if !p.take(", ") {
			return nil, fmt.Errorf("%w: no separator at %q of %q", errNotAList, p.rest, text)
		}
	}
}

func (p *listParser) member() (member, error) {
	name, err := p.text()
	m := member{name, map[string]int64{}}
	for err == nil && p.take(";") {
		key := p.key()
		if _, twice := m.parameters[key]; key == "" || twice || !p.take("=") {
			return m, errors.New("parameter")
		}
		m.parameters[key], err = p.integer()
	}
	return m, err
}

func (p *listParser) take(text string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, text)
	return ok
}

// text reads sf-string = DQUOTE *( unescaped / bs-escaped ) DQUOTE.
func (p *listParser) text() (string, error) {
	if !p.take(`"`) {
		return "", errors.New("no string")
	}
	var text strings.Builder
	for {
		switch {
		case p.take(`"`):
			return text.String(), nil
		case p.take(`\"`):
			text.WriteByte('"')
		case p.take(`\\`):
			text.WriteByte('\\')
		case p.rest == "" || p.rest[0] < 0x20 || p.rest[0] > 0x7e || p.rest[0] == '\\':
			return "", errors.New("character")
		default:
			text.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		}
	}
}

// key reads key = ( lcalpha / "*" ) *( lcalpha / DIGIT / "_" / "-" / "." / "*" ).
func (p *listParser) key() string {
	const first, more = "abcdefghijklmnopqrstuvwxyz*", "0123456789_-."
	if p.rest == "" || !strings.Contains(first, p.rest[:1]) {
		return ""
	}
	after := strings.TrimLeft(p.rest, first+more)
	key := p.rest[:len(p.rest)-len(after)]
	p.rest = after
	return key
}

// integer reads sf-integer = ["-"] 1*15DIGIT, without leading zeros.
func (p *listParser) integer() (int64, error) {
	after := strings.TrimLeft(p.rest, "-0123456789")
	text := p.rest[:len(p.rest)-len(after)]
	p.rest = after
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text || len(strings.TrimPrefix(text, "-")) > 15 {
		return 0, errors.New("integer")
	}
	return n, nil
}

// TestParseList sees that the parser of the tests is strict.
func TestParseList(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", `"a`, `a;q=1`, `"a";q=1,`, `"a";q=1,"b"`, `"a";q`, `"a";Q=1`, `"a";q=01`, `"a";q=1.5`, `"a";q=1;q=2`,
		`"a"; q=1`, `"é"`, "\"\x00\"", `"\x"`, `"a";q=1000000000000000`, `"a";=1`, `"a" "b"`, `"a";q=--1`,
	} {
		_, err := parseList(text)
		require.ErrorIs(t, err, errNotAList, text)
	}
	got, err := parseList(`"a \"\\";q=1;w=999999999999999, "";*x=-5`)
	require.NoError(t, err)
	require.Equal(t, []member{{`a "\`, map[string]int64{"q": 1, "w": 999_999_999_999_999}}, {"", map[string]int64{"*x": -5}}}, got)
}

func BenchmarkFields(b *testing.B) {
	all := quotasAs([]policyState{{"create-order", limit.Rule{Capacity: 200, WindowMillis: 2000}, limit.State{Remaining: 152}}})
	b.ReportAllocs()
	for b.Loop() {
		_ = Policy(all)
		_ = Limit(all)
	}
}

// TestH9Until sees t for each algorithm: never 0 while less is left than there may be.
func TestH9Until(t *testing.T) {
	t.Parallel()
	bucket := limit.Rule{Algorithm: limit.TokenBucket, Capacity: 10, Refill: 0.1, WindowMillis: 100_000}
	log := limit.Rule{Algorithm: limit.SlidingWindowLog, Capacity: 10, Refill: 0.1, WindowMillis: 100_000}
	state := func(remaining int64, retry, reset time.Duration) limit.State {
		return limit.State{Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
	}
	for name, test := range map[string]struct {
		rule  limit.Rule
		state limit.State
		want  int64 // 0: none
	}{
		"one more token":                {bucket, state(7, 0, 24*time.Second), 4},
		"the last one":                  {bucket, state(9, 0, 100*time.Millisecond), 1},
		"a full bucket":                 {bucket, state(10, 0, 0), 0},
		"an empty one":                  {bucket, state(0, 3*time.Second, 93*time.Second), 3},
		"more than one is missing":      {bucket, state(2, 25*time.Second, 75*time.Second), 5},
		"never":                         {bucket, state(10, limit.Never, 0), 0},
		"a log with room":               {log, state(4, 0, 90*time.Second), 90},
		"a log without":                 {log, state(0, 7*time.Second, 90*time.Second), 7},
		"a log with less than the cost": {log, state(2, 8*time.Second, 90*time.Second), 8},
		"a full log":                    {log, state(10, 0, 0), 0},
	} {
		q := Quota{Rule: test.rule, Held: test.rule, State: test.state}
		seconds, found := q.UntilMore()
		require.Equal(t, test.want != 0, found, name)
		require.Equal(t, test.want, seconds, name)
	}
}
