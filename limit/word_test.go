package limit

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestL9Nearest(t *testing.T) {
	t.Parallel()
	options := []string{"tenant", "guest", "limit", "algorithm", "ipv4_prefix", "ipv6_prefix", "headers", "cost"}
	tests := []struct {
		word  string
		known []string
		want  string
	}{
		{"tennant", options, "tenant"},
		{"geust", options, "guest"},
		{"Limit", options, "limit"},
		{"limits", options, "limit"},
		{"ipv4prefix", options, "ipv4_prefix"},
		{"algo", options, "algorithm"},
		{"ipv", options, ""}, // two begin so
		{"csot", options, "cost"},
		{"quota", options, ""},
		{"x", options, ""},
		{"", options, ""},
		{"limit", options, ""},
		{"token_buckett", []string{"token_bucket", "sliding_window_log"}, "token_bucket"},
		{"sliding_window", []string{"token_bucket", "sliding_window_log", "sliding_window_counter"}, ""},
		{"apii", []string{"api", "orders"}, "api"},
		{"craete-order", []string{"create-order", "delete-order"}, "create-order"},
		{"on", []string{"off"}, ""},
		{"a", []string{"b"}, ""},
		{strings.Repeat("x", 65), []string{strings.Repeat("x", 64)}, ""},
		{"limit", nil, ""},
	}
	for _, test := range tests {
		require.Equal(t, test.want, Nearest(test.word, test.known...), test.word)
	}
}

func TestSlips(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"a", ""}: 1, {"", "ab"}: 2, {"ab", "ba"}: 1, {"abc", "axc"}: 1, {"hedaer", "header"}: 1,
		{"kitten", "sitting"}: 3, {"limit", "limit"}: 0,
	} {
		require.Equal(t, want, slips(pair[0], pair[1]), pair)
		require.Equal(t, want, slips(pair[1], pair[0]), pair)
	}
}

func TestL9UnknownWord(t *testing.T) {
	t.Parallel()
	_, err := ParseAlgorithm("sliding_window_lgo")
	require.EqualError(t, err, `unknown algorithm "sliding_window_lgo": allowed are token_bucket, sliding_window_log, sliding_window_counter; did you mean sliding_window_log?`)
	_, err = ParseMode("shade")
	require.EqualError(t, err, `unknown mode "shade": allowed are enforce, shadow, unlimited, deny`)
	_, err = ParseMode("unlimitted")
	require.ErrorContains(t, err, "did you mean unlimited?")
	require.NotContains(t, UnknownWord("mode", strings.Repeat("x", 100), "deny").Error(), strings.Repeat("x", 65))
}

func FuzzNearest(f *testing.F) {
	f.Add("tennant", "tenant")
	f.Fuzz(func(t *testing.T, word, known string) {
		if near := Nearest(word, known); near != "" && (near != known || near == word) {
			t.Errorf("%q for %q of %q", near, word, known)
		}
	})
}
