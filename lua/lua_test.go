package lua_test

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddygate/ratelimit/internal/servertest"
	"github.com/caddygate/ratelimit/lua"
)

func TestTakeIsOneText(t *testing.T) {
	t.Parallel()
	script := lua.Take()
	require.Equal(t, script, lua.Take())
	sum := sha1.Sum([]byte(script.Text))
	require.Equal(t, hex.EncodeToString(sum[:]), script.SHA1)
	require.NotContains(t, script.Text, "--", "comments are left out")
	for _, name := range []string{"token_bucket", "sliding_window_log", "sliding_window_counter"} {
		require.Contains(t, script.Text, "local function "+name+"()")
	}
	require.Less(t, len(script.Text), 20<<10, "it is sent whole where it is not known")
}

func TestTakeLoads(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	script := lua.Take()
	digest, err := client.ScriptLoad(t.Context(), script.Text).Result()
	require.NoError(t, err)
	require.Equal(t, script.SHA1, digest)
}

// TestTakeWritesNoGlobals: Redis refuses them, and only where they are reached.
func TestTakeWritesNoGlobals(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(lua.Take().Text) {
		require.False(t, strings.HasPrefix(line, "function "), line)
	}
}

// TestErrorsEndTheScript: an error that is not a foreign type is the reply, and
// nothing has been taken.
func TestErrorsEndTheScript(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	rights := []any{"acl", "setuser", "default", "-hset", "-zadd"}
	require.NoError(t, client.Do(t.Context(), rights...).Err())
	for algorithm := 1.0; algorithm <= 3; algorithm++ {
		err := client.Eval(t.Context(), lua.Take().Text, []string{"k"}, packed(1, 1, 1, algorithm, 10, 1, 10_000)).Err()
		require.Error(t, err)
		require.Zero(t, client.Exists(t.Context(), "k").Val())
	}
}

// TestSeveralEntriesOverSeveralKeys runs the protocol as batching will use it.
func TestSeveralEntriesOverSeveralKeys(t *testing.T) {
	t.Parallel()
	client := servertest.Redis(t).Client(t)
	reply, err := client.Eval(t.Context(), lua.Take().Text,
		[]string{
			"{t}:a", "{t}:b:log", "{t}:c:win", "{t}:a", "{t}:a", "{t}:d", "{t}:b:log", "{t}:a", "{t}:d",
		},
		packed(
			3, 2, 10, // three keys, cost 2, up to 10 units
			1, 10, 0.001, 10_000_000,
			2, 7, 0.001, 7_000_000,
			3, 9, 0.001, 9_000_000,
		),
		packed(
			1, 1, 0, // one key, a look
			1, 10, 0.001, 10_000_000,
		),
		packed(
			2, 3, 4, // two token buckets, of which one was used
			1, 10, 0.001, 10_000_000,
			1, 7, 0.001, 7_000_000,
		),
		packed(
			1, 4, 1, // a log again, that has too little
			2, 7, 0.001, 7_000_000,
		),
		packed(
			2, 3, 4,
			1, 10, 0.001, 10_000_000,
			1, 7, 0.001, 7_000_000,
		),
	).Int64Slice()
	require.NoError(t, err)
	require.Len(t, reply, 1+3*3+1+3+1+2*3+1+3+1+2*3)
	require.Equal(t, int64(3), reply[0], "the log has room for three units of 2")
	require.Equal(t, int64(4), reply[1])
	require.Equal(t, int64(1), reply[4])
	require.Positive(t, reply[5])
	require.Equal(t, int64(3), reply[7])
	require.Equal(t, []int64{0, 4}, reply[10:12])
	require.Equal(t, []int64{1, 1}, reply[14:16], "one unit of 3, as the first has 4")
	require.Equal(t, int64(4), reply[18])
	require.Equal(t, []int64{0, 1}, reply[21:23])
	require.Equal(t, []int64{0, 1}, reply[25:27], "the first has too little now")
	require.Equal(t, []int64{4, 0}, reply[29:31], "and the second loses nothing, and waits for nothing")
	require.Equal(t, int64(6), client.ZCard(t.Context(), "{t}:b:log").Val())
}

// packed is the argument of an entry.
func packed(numbers ...float64) []byte {
	var text []byte
	for _, number := range numbers {
		text = binary.LittleEndian.AppendUint64(text, math.Float64bits(number))
	}
	return text
}
