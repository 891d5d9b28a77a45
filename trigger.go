package ratelimit

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"
)

// triggerNamespace is where the guest modules are that implement Trigger.
const triggerNamespace = "rate_limit.triggers"

// triggerStopTimeout is how long a stop waits for a trigger.
const triggerStopTimeout = 5 * time.Second

// Trigger is a guest module in the namespace `rate_limit.triggers`. It hears by
// a way of its own that the table of rules may have changed, beside NOTIFY and
// polling, neither of which depends on it.
type Trigger interface {
	// Run calls refresh each time that the table may have changed, and also when
	// it begins to hear of changes or does so again, because it missed those
	// before. It deals with every failure itself, and returns soon after ctx has
	// ended and not before. Refresh never blocks, may be called by several
	// goroutines and as often as changes come: the table is asked at most every
	// half second.
	Run(ctx context.Context, refresh func())

	// Connected reports whether changes would be heard of now. It never blocks.
	Connected() bool
}

// runningTrigger is a trigger and what is needed to run it.
type runningTrigger struct {
	Trigger
	name   string
	logger *zap.Logger
	stop   func() // does nothing before the start
}

// provisionTrigger loads the guest module that the rules name.
func (a *App) provisionTrigger(ctx caddy.Context) error {
	if a.Rules.TriggerRaw == nil {
		return nil
	}
	var named struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(a.Rules.TriggerRaw, &named); err != nil {
		return fmt.Errorf("rules.trigger: %w", err)
	}
	guest, err := ctx.LoadModule(a.Rules, "TriggerRaw")
	if err != nil {
		return fmt.Errorf("rules.trigger: %w", err)
	}
	trigger, ok := guest.(Trigger)
	if !ok {
		return fmt.Errorf("rules.trigger: the module %s.%s is no trigger", triggerNamespace, named.Name)
	}
	a.trigger = &runningTrigger{Trigger: trigger, name: named.Name, logger: a.logger, stop: func() {}}
	return nil
}

// start runs the trigger until its stop is called, which waits for its end, for 5 s
// at most. Changed is called for each sign of a change.
func (t *runningTrigger) start(changed func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := processCollectors().triggered.WithLabelValues(t.name)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.Run(ctx, func() {
			if ctx.Err() != nil {
				return // another config may be in force by now
			}
			signals.Inc()
			changed()
		})
		if ctx.Err() == nil {
			t.logger.Error("the trigger ended, so the rules are only polled", zap.String("trigger", t.name))
		}
	}()
	t.stop = sync.OnceFunc(func() {
		cancel()
		timeout := time.NewTimer(triggerStopTimeout)
		defer timeout.Stop()
		select {
		case <-ended:
		case <-timeout.C:
			t.logger.Warn("the trigger did not stop in time, so it is left behind", zap.String("trigger", t.name))
		}
	})
}

// parseTrigger reads `trigger <name> { … }`; the block is the module's.
func (r *Rules) parseTrigger(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Err("trigger needs the name of a module, such as kafka")
	}
	name := d.Val()
	if _, err := caddy.GetModule(triggerNamespace + "." + name); err != nil {
		return d.Errf("trigger: there is no module %s.%s in this Caddy: build it in", triggerNamespace, name)
	}
	guest, err := caddyfile.UnmarshalModule(d, triggerNamespace+"."+name)
	if err != nil {
		return err
	}
	r.TriggerRaw = caddyconfig.JSONModuleObject(guest, "name", name, nil)
	return nil
}
