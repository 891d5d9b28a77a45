// Package lua holds the one script that takes tokens in Redis. It is written as
// a short way for the usual entry, of one token bucket, and a long way for all
// others: one file for what the algorithms share, one for each algorithm, and
// take.lua, whose header describes the keys, the arguments and the reply. Beside
// it there is heartbeat.lua, by which gateways count themselves.
package lua

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"strings"
)

var (
	//go:embed clock.lua
	clock string
	//go:embed one_bucket.lua
	oneBucket string
	//go:embed state.lua
	state string
	//go:embed token_bucket.lua
	tokenBucket string
	//go:embed sliding_window_log.lua
	slidingWindowLog string
	//go:embed sliding_window_counter.lua
	slidingWindowCounter string
	//go:embed take.lua
	take string
	//go:embed heartbeat.lua
	heartbeat string
)

// Script is a Lua script as EVAL and EVALSHA name it.
type Script struct {
	// Text is the whole script.
	Text string

	// SHA1 is the lower-case hex SHA-1 of the text.
	SHA1 string
}

// Take returns the script that takes tokens. Every call returns the same text,
// so a server caches it once whatever the rules are.
func Take() Script {
	return newScript(clock, oneBucket, state, tokenBucket, slidingWindowLog, slidingWindowCounter, take)
}

// Heartbeat returns the script that notes that a process lives and counts those
// that do. Its header describes the keys, the arguments and the reply.
func Heartbeat() Script { return newScript(heartbeat) }

func newScript(parts ...string) Script {
	text := stripped(strings.Join(parts, "\n"))
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// stripped leaves out comments and empty lines: a server that does not know the
// script is sent the whole of it within a request's few milliseconds.
func stripped(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}
