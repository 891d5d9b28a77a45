package ratelimit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddygate/ratelimit/fleet"
)

// TestObserveFleet logs each event with what an operator needs.
func TestObserveFleet(t *testing.T) {
	t.Parallel()
	known := fleet.Status{
		Instances: 3, Counted: 2, LastReason: "noperm",
		Rules: []fleet.Group{{Hash: "aa", Instances: 1}, {Hash: fleet.NoRules, Instances: 1}},
	}
	for kind, want := range map[fleet.EventKind]struct {
		level  string
		fields map[string]any
	}{
		fleet.InstancesChanged: {"info", map[string]any{"instances": int64(3), "before": int64(5), "counted": int64(2)}},
		fleet.HeartbeatLost:    {"warn", map[string]any{"instances": int64(3), "reason": "noperm"}},
		fleet.HeartbeatBack:    {"info", map[string]any{"instances": int64(3)}},
		fleet.RulesAgree:       {"info", map[string]any{"instances": int64(3)}},
		fleet.RulesDisagree: {"warn", map[string]any{
			"instances": int64(3), "counted": int64(2), "disagree": int64(1), "hash": "", "most": "aa",
		}},
	} {
		core, logs := observer.New(zap.InfoLevel)
		app := &App{logger: zap.New(core)}
		app.observeFleet(fleet.Event{Kind: kind, Status: known, Was: 5})
		require.Equal(t, 1, logs.Len())
		entry := logs.All()[0]
		require.Equal(t, kind.String(), entry.Message)
		require.NotEmpty(t, entry.Message)
		require.Equal(t, want.level, entry.Level.String(), entry.Message)
		require.Equal(t, want.fields, entry.ContextMap(), entry.Message)
	}
}

// TestInstancesBeforeAnyAnswer has the number of the configuration, and tells
// nothing that is not known.
func TestInstancesBeforeAnyAnswer(t *testing.T) {
	t.Parallel()
	seven := 7
	for name, app := range map[string]*App{
		"fixed": {Instances: &seven},
		"auto":  {Instances: &seven, InstancesAuto: true, fleet: fleet.New("")},
	} {
		require.Equal(t, 7, app.instances(), name)
		require.Equal(t, int64(7), app.sharers(), name)
		require.Nil(t, app.fleetStatus(), name)
	}
	require.Equal(t, 1, new(App).instances())
	new(App).collectFleet(func(desc *prometheus.Desc, _ float64, _ ...string) { t.Errorf("without redis: %v", desc) })
}
