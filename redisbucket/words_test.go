package redisbucket

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type spoken string

func (s spoken) Error() string { return string(s) }
func (spoken) RedisError()     {}

// TestH13Words sees what is told of Redis' own words: no argument, one line, bounded.
func TestH13Words(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ERR DB index is out of range":                                                     "ERR DB index is out of range",
		"ERR max number of clients reached":                                                "ERR max number of clients reached",
		"DENIED Redis is\r\nin protected mode":                                             "DENIED Redis is  in protected mode",
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'it's secret' ": "ERR unknown command '…'",
		"NOPERM User gateway has no permissions to run the 'hset' command":                 "NOPERM User gateway has no permissions to run the 'hset' command",
		"NOPERM no right for 'rl:{secret}:a' and \"secret\"":                               "NOPERM no right for '…' and '…'",
		"ERR " + strings.Repeat("é", 200):                                                  "ERR " + strings.Repeat("é", 98),
	} {
		require.Equal(t, want, words(fmt.Errorf("asking: %w", spoken(text))), text)
	}
	require.Empty(t, words(errors.New("secret")))
	require.Empty(t, words(nil))
}
