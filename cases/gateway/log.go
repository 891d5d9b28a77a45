package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

func (g *Process) LogFile() string { return filepath.Join(g.Dir, "log") }

func (g *Process) Log() string {
	text, _ := os.ReadFile(g.LogFile())
	return string(text)
}

// AccessLog returns the group rate_limit of each line of the access log, nil
// where a line has none.
func (g *Process) AccessLog() (groups []map[string]any) {
	g.t.Helper()
	for line := range strings.SplitSeq(g.Log(), "\n") {
		var entry struct {
			Logger    string         `json:"logger"`
			RateLimit map[string]any `json:"rate_limit"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Logger, "http.log.access") {
			groups = append(groups, entry.RateLimit)
		}
	}
	return groups
}

// Outcomes are those of the access log, in order.
func (g *Process) Outcomes(n int) (words []any) {
	g.t.Helper()
	Eventually(g.t, time.Minute, "the access log is written", func() bool { return len(g.AccessLog()) >= n })
	for _, group := range g.AccessLog() {
		words = append(words, group["outcome"])
	}
	return words
}

func (g *Process) Events() (events []map[string]any) {
	g.t.Helper()
	text, _ := os.ReadFile(filepath.Join(g.Dir, "events"))
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		if line == "" {
			continue
		}
		var event map[string]any
		require.NoError(g.t, json.Unmarshal([]byte(line), &event))
		events = append(events, event)
	}
	return events
}

// EventNames are the names of the events in the gateway's file.
func (g *Process) EventNames() []string {
	g.t.Helper()
	var names []string
	for _, event := range g.Events() {
		names = append(names, event["name"].(string))
	}
	return names
}
