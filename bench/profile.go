package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// profile writes CPU profiles of bare Caddy and of our gateways under the first
// load of the plan to dir, from Caddy's admin API.
func (l *laboratory) profile(ctx context.Context, p plan, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the folder for profiles: %w", err)
	}
	first := p.groups[0]
	names := map[string]string{nameBare: "bare.pprof", nameAlone: "memory.pprof", nameStrict: "redis.pprof"}
	for _, c := range first.cells {
		name, wanted := names[c.name]
		if !wanted {
			continue
		}
		say("taking the profile %s", name)
		if err := l.profileOf(ctx, c, first.load, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("profiling %s: %w", c.name, err)
		}
	}
	return nil
}

func (l *laboratory) profileOf(ctx context.Context, c cell, load load, file string) error {
	const seconds = 5
	g := l.gateways[c.site]
	fired := make(chan error, 1)
	go func() {
		_, err := l.wrk.fire(ctx, g.addr, load, (seconds+1)*time.Second)
		fired <- err
	}()
	taken, err := fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", g.admin, seconds))
	if fireErr := <-fired; err == nil {
		err = fireErr
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, taken, 0o600)
}
