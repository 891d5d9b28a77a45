package limit_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

func sha256Name(raw string) string {
	return fmt.Sprintf("~sha256-%x", sha256.Sum256([]byte(raw)))
}

func TestEscapeName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", limit.MaxNameLength)
	for raw, want := range map[string]string{
		"":                               "",
		"shop-a":                         "shop-a",
		"A.b_c-9@x":                      "A.b_c-9@x",
		"a:b":                            "a%3Ab",
		"a%3Ab":                          "a%253Ab",
		"}{":                             "%7D%7B",
		"a b\t\x00":                      "a%20b%09%00",
		"é":                              "%C3%A9",
		"\xff":                           "%FF",
		"~guest":                         "%7Eguest",
		"*":                              "%2A",
		long:                             long,
		long + "a":                       sha256Name(long + "a"),
		long[1:] + "/":                   sha256Name(long[1:] + "/"),
		long[3:] + "/":                   long[3:] + "%2F",
		strings.Repeat("{", 32):          strings.Repeat("%7B", 32),
		strings.Repeat("{", 33):          sha256Name(strings.Repeat("{", 33)),
		"~sha256-" + sha256Name("x")[8:]: "%7Esha256-" + sha256Name("x")[8:],
	} {
		require.Equal(t, want, limit.EscapeName(raw), "%q", raw)
	}
}

func TestEscapeNameAllocatesNothingForPlainNames(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = limit.EscapeName("tenant-0042@example.org") }))
}

// TestK1Collisions sees that no two pairs share a key, whatever their parts are
// made of.
func TestK1Collisions(t *testing.T) {
	t.Parallel()
	parts := []string{
		":", "|", "/", "%", "3A", "%3A", " ", "\t", "}", "{", "{}", "{x}", "a", "b", "c", "~guest", "~ip-", "*", "\x00", "é", "",
		strings.Repeat("long", 25), "~sha256-", "~blank",
	}
	random := rand.New(rand.NewPCG(1, 1))
	name := func() string {
		var b strings.Builder
		for range random.IntN(5) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		return b.String()
	}
	pairs := map[[2]string]bool{{"a:b", "c"}: true, {"a", "b:c"}: true}
	for len(pairs) < 10_000 {
		pairs[[2]string{name(), name()}] = true
	}
	keys := map[limit.Key]bool{}
	for pair := range pairs {
		keys[limit.Key{Tenant: limit.EscapeName(pair[0]), Route: limit.EscapeName(pair[1])}] = true
	}
	require.Len(t, keys, len(pairs))
}

// TestK7LongNames sees that names of any length stay distinct and short.
func TestK7LongNames(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("x", 200_000)
	names := map[string]bool{limit.EscapeName(huge + "a"): true, limit.EscapeName(huge + "b"): true}
	for i := range 100 {
		names[limit.EscapeName(strings.Repeat("prefix", 50)+fmt.Sprint(i))] = true
	}
	require.Len(t, names, 102)
	for name := range names {
		require.LessOrEqual(t, len(name), limit.MaxNameLength)
	}
}

func FuzzEscapeName(f *testing.F) {
	f.Add("a:b", "a%3Ab")
	f.Add("~sha256-", strings.Repeat("{", 33))
	f.Add(strings.Repeat("a", 96), strings.Repeat("a", 97))
	f.Fuzz(func(t *testing.T, a, b string) {
		nameA, nameB := limit.EscapeName(a), limit.EscapeName(b)
		require.Equal(t, a == b, nameA == nameB, "%q is %q, %q is %q", a, nameA, b, nameB)
		for _, name := range []string{nameA, nameB} {
			require.LessOrEqual(t, len(name), limit.MaxNameLength)
			hashed := strings.HasPrefix(name, "~sha256-") && len(name) == len("~sha256-")+64
			require.True(t, hashed || !strings.ContainsAny(name, "~{}:*/ "), name)
		}
	})
}

func TestValidRoute(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"": false, "create-order": true, "A.b_c-9": true, "/orders": false, "a@b": false, "a b": false, "é": false,
		"{x}": false, "*": false, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false,
	} {
		require.Equal(t, want, limit.ValidRoute(name), name)
		if want {
			require.Equal(t, name, limit.EscapeName(name), "a route is its own name")
		}
	}
}
