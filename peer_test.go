package ratelimit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"
)

// TestConfigurationsOfCaddyRatelimit holds docs/from-caddy-ratelimit.md: what
// people write for that plugin adapts to what is below the ten dashes of each file,
// which are its handlers in the order of Caddy's routes, and is accepted.
func TestConfigurationsOfCaddyRatelimit(t *testing.T) {
	files, err := filepath.Glob("testdata/peer/*.caddyfiletest")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 50)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			require.NoError(t, err)
			caddyfile, want, found := bytes.Cut(golden, []byte("\n----------\n"))
			require.True(t, found, "no line of ten dashes")
			config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(caddyfile, map[string]any{"filename": "Caddyfile"})
			require.NoError(t, err)
			for _, warning := range warnings {
				require.Contains(t, warning.Message, "not formatted", "Caddy's own")
			}
			handlers := rateLimitsIn(t, config)
			got, err := json.Marshal(handlers)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(got))
			for _, handler := range handlers {
				delete(handler, "handler")
				text, err := json.Marshal(handler)
				require.NoError(t, err)
				_, err = provision(t, `{}`, string(text))
				require.NoError(t, err)
			}
		})
	}
}

// rateLimitsIn returns the handlers of a config, in the order in which they stand there.
func rateLimitsIn(t *testing.T, config []byte) (handlers []map[string]any) {
	t.Helper()
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			if v["handler"] == "rate_limit" {
				handlers = append(handlers, v)
			}
			walk(v["routes"])
			walk(v["handle"])
		}
	}
	var parsed struct {
		Apps struct {
			HTTP struct {
				Servers map[string]any `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	require.NoError(t, json.Unmarshal(config, &parsed))
	require.Len(t, parsed.Apps.HTTP.Servers, 1)
	for _, server := range parsed.Apps.HTTP.Servers {
		walk(server)
	}
	return handlers
}
