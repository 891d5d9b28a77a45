package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// profile writes CPU profiles of bare Caddy and of our gateways under the first
// load of the plan, and of ours under a flood, to dir, from Caddy's admin API.
func (l *laboratory) profile(ctx context.Context, p plan, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("making the folder for profiles: %w", err)
	}
	for i, g := range p.groups {
		for _, c := range g.cells {
			name := profileName(c)
			if name == "" || (i > 0 && !c.flood) {
				continue
			}
			say("taking the profile %s", name)
			if err := l.profileOf(ctx, c, g.load, filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("profiling %s (%s): %w", c.name, g.heading(), err)
			}
		}
	}
	return nil
}

// profileName is the file for a gateway's profile, blank where none is taken.
func profileName(c cell) string {
	switch {
	case c.flood && c.name == nameStrict:
		return "flood.pprof"
	case c.name == nameBare:
		return "bare.pprof"
	case c.name == nameAlone:
		return "memory.pprof"
	case c.name == nameStrict:
		return "redis.pprof"
	case c.name == nameRefuse:
		return "refuse.pprof"
	default:
		return ""
	}
}

func (l *laboratory) profileOf(ctx context.Context, c cell, load load, file string) error {
	const seconds = 5
	g := l.gateways[c.site]
	fired := make(chan error, 1)
	go func() {
		_, err := l.wrk.fire(ctx, g.addrs[c.answer], load, (seconds+1)*time.Second)
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
