package headers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWantsProblem(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"":                                                 false,
		"*/*":                                              false,
		"application/*":                                    false,
		"application/json":                                 false,
		"application/problem+xml":                          false,
		"application/problem+json":                         true,
		"Application/Problem+JSON":                         true,
		" application/problem+json ;q=1":                   true,
		"application/problem+json;q=0":                     false,
		"application/problem+json;q=0.":                    false,
		"application/problem+json;q=0.000":                 false,
		"application/problem+json;q=0.001":                 true,
		"application/problem+json;q=.5":                    false,
		"application/problem+json;q=0.0001":                false,
		"application/problem+json;q=1":                     true,
		"application/problem+json;q=1.":                    true,
		"application/problem+json;q=1.000":                 true,
		"application/problem+json;q=1.001":                 false,
		"application/problem+json;q=2":                     false,
		"application/problem+json;q=-1":                    false,
		"application/problem+json;q=":                      false,
		"application/problem+json;q":                       false,
		"application/problem+json;q=0x1":                   false,
		"application/problem+json; Q = 0.5":                true,
		"application/problem+json;charset=utf-8":           true,
		`application/problem+json;x="a;q=0";q=1`:           true,
		`application/problem+json;x="a,\";";q=0`:           false,
		"text/html,application/problem+json":               true,
		"text/html;q=0.9 , application/problem+json;q=0.1": true,
		"application/problem+json;q=0, text/html;q=1":      false,
		`text/html;x="application/problem+json"`:           false,
		`text/html;x=",application/problem+json,"`:         false,
		`text/html;x="\",application/problem+json`:         false,
		"application/problem+jsonx":                        false,
		"application/problem+json/":                        false,
		",,;;,application/problem+json":                    true,
	} {
		require.Equal(t, want, WantsProblem([]string{accept}), accept)
		require.Equal(t, want, WantsProblem([]string{"text/plain", accept, "*/*"}), "%s, on a line of its own", accept)
	}
	require.False(t, WantsProblem(nil))
}

func FuzzWantsProblem(f *testing.F) {
	f.Add(`application/problem+json;q="`)
	f.Add(`text/html;x="\`)
	f.Add(",;=\"\\")
	f.Fuzz(func(t *testing.T, accept string) {
		if WantsProblem([]string{accept}) {
			require.Contains(t, strings.ToLower(accept), ProblemMedia)
		}
		require.True(t, WantsProblem([]string{accept, ProblemMedia}))
	})
}

func BenchmarkWantsProblem(b *testing.B) {
	accept := []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
	b.ReportAllocs()
	for b.Loop() {
		_ = WantsProblem(accept)
	}
}
