package limittest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/limit"
)

// nameCases are about keys whose names are made to be taken for others.
func nameCases() []testCase {
	return []testCase{{name: "no two names collide (K1)", run: namesApart}}
}

func namesApart(t *testing.T, s *subject) {
	parts := []string{
		":", "|", "/", "%", "3A", " ", "\t", "}", "{", "{}", "{x}", "a", "b", "c", "log", "win", "0",
		"~guest", "~ip-", "~", "*", "\x00", "é", "", strings.Repeat("long", 25), "~sha256-",
	}
	random := rand.New(rand.NewPCG(fixedSeed, 1))
	name := func() string {
		var b strings.Builder
		for range random.IntN(5) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		return b.String()
	}
	pairs := map[[2]string]bool{{"a:b", "c"}: true, {"a", "b:c"}: true, {"a", "b:log"}: true, {"a", "b"}: true}
	for len(pairs) < 1000 {
		pairs[[2]string{name(), name()}] = true
	}
	a := s.bucket(t, "a", 1, slow)
	for pair := range pairs {
		a.Key = limit.Key{Tenant: limit.EscapeName(pair[0]), Route: limit.EscapeName(pair[1])}
		require.Equal(t, int64(1), s.one(t, a).Granted, "%q", pair)
	}
}
