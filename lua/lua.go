// Package lua holds the one script that takes tokens in Redis. It is written as
// a short way for the usual entry, of one token bucket, and a long way for all
// others: one file for what the algorithms share, one for each algorithm, and
// take.lua, whose header describes the keys, the arguments and the reply. Beside
// it there is heartbeat.lua, by which gateways count themselves.
package lua

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed *.lua
var files embed.FS

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
	return newScript("take.lua")
}

// Heartbeat returns the script that notes that a process lives and counts those
// that do. Its header describes the keys, the arguments and the reply.
func Heartbeat() Script { return newScript("heartbeat.lua") }

func newScript(name string) Script {
	var out strings.Builder
	write(&out, name)
	text := out.String()
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
	return Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// write writes a file, and those that its lines with an arrow name in their place.
// It leaves out comments and empty lines: a server that does not know the script
// is sent the whole of it within a request's few milliseconds.
func write(out *strings.Builder, name string) {
	text, _ := files.ReadFile(name) // a file that is missing fails every test
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if included, found := strings.CutPrefix(line, "--> "); found {
			write(out, included)
		} else if line != "" && !strings.HasPrefix(line, "--") {
			out.WriteString(line + "\n")
		}
	}
}
