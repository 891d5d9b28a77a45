package gateway

import (
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/require"
)

// Adapt returns the JSON of a Caddyfile.
func Adapt(caddyfile string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	return config, err
}

// HandlerOf returns the JSON of the first rate_limit handler in the config.
func HandlerOf(t *testing.T, config []byte) string {
	t.Helper()
	var found string
	var walk func(value any)
	walk = func(value any) {
		switch v := value.(type) {
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			if v["handler"] == "rate_limit" && found == "" {
				text, err := json.Marshal(v)
				require.NoError(t, err)
				found = string(text)
			}
			for _, item := range v {
				walk(item)
			}
		}
	}
	var parsed any
	require.NoError(t, json.Unmarshal(config, &parsed))
	walk(parsed)
	return found
}
